package lockpage_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/lockpage"
	"github.com/sidingq/siding/internal/testenv/browsertest"
	"github.com/sidingq/siding/internal/testenv/expect"
)

var (
	wide   = browsertest.Window{Width: 1280, Height: 900}
	dark   = browsertest.Window{Width: 1280, Height: 900, Dark: true}
	narrow = browsertest.Window{Width: 390, Height: 844}
)

// serve returns the address of the pages.
func serve(t *testing.T, cfg lockpage.Config) string {
	t.Helper()
	srv := httptest.NewServer(open(t, cfg))
	t.Cleanup(srv.Close)
	return srv.URL
}

// mayRevoke is a function that takes a lock from nobody.
func mayRevoke(context.Context, string, int64, string, string) error { return nil }

// open returns the pages.
func open(t *testing.T, cfg lockpage.Config) *lockpage.Handler {
	t.Helper()
	if cfg.By == nil {
		cfg.By = func(*http.Request) string { return "ann" }
	}
	return lockpage.New(cfg)
}

// renew has the page renew itself now, and not only in a second.
func renew(page *browsertest.Page) {
	page.Eval(`document.dispatchEvent(new Event("visibilitychange"))`, nil)
	page.AwaitText("live")
}

// shop has locks as those of the demo shop.
func shop() *source {
	now := time.Now()
	s := newSource()
	kinds := []string{"order:audit", "stock:deduct", "account:post", "order:cancel"}
	for i := range 24 {
		kind := kinds[i%len(kinds)]
		waiting := max(0, 9-i)*max(0, 9-i) + i%3
		l := inspect.Lock{
			Resource: fmt.Sprintf("%s:%d", strings.Split(kind, ":")[0], 536365+i*7), State: inspect.Held,
			Task:   &inspect.Task{Queue: "default", ID: fmt.Sprintf("%s-%04d", strings.Split(kind, ":")[1], 17*i+3), Kind: kind},
			Worker: &inspect.Worker{Host: fmt.Sprintf("worker-%d", i%3+1), PID: 4100 + i%3},
			Since:  now.Add(-time.Duration(i*i+1) * 370 * time.Millisecond), Left: inspect.Duration(10+i%5) * 1e9, Fence: 1795465443123456 + int64(i),
			Waiting: waiting, OldestWait: inspect.Duration(waiting) * 1.4e9,
		}
		l.Holder = fmt.Sprintf("%s %s on %s (pid %d)", kind, l.Task.ID, l.Worker.Host, l.Worker.PID)
		switch i {
		case 3:
			l.State, l.Holder, l.Worker, l.Left = inspect.Reserved, "", nil, 2.4e9
		case 5:
			l.Gone, l.Left = true, 3.1e9
		case 7:
			l.State, l.Holder, l.Task, l.Worker, l.Since, l.Fence = inspect.Foreign, "another program", nil, nil, time.Time{}, 0
		case 8:
			l.Holder, l.Task, l.Worker, l.Since, l.Fence = "3 holders", nil, nil, time.Time{}, now.UnixMicro()
		}
		s.put(l)
	}
	return s
}

// example is a task that waits in shop.
func example() inspect.Explanation {
	holder := inspect.Task{Queue: "default", ID: "audit-0003", Kind: "order:audit"}
	worker := inspect.Worker{Host: "worker-1", PID: 4100}
	return inspect.Explanation{
		Task: inspect.Task{Queue: "default", ID: "audit-7", Kind: "order:audit"}, State: inspect.StateWaiting, Resource: "order:536365",
		Position: 7, Since: time.Now().Add(-74 * time.Second), Waited: 74e9, Servers: 3, Retries: 25, Parks: 1, Tolerated: 3,
		LastError: "held by order:audit audit-0003 on worker-1 (pid 4100)",
		Next:      time.Now().Add(40 * time.Minute),
		Lock: &inspect.Lock{
			Resource: "order:536365", State: inspect.Held, Holder: "order:audit audit-0003 on worker-1 (pid 4100)", Task: &holder, Worker: &worker,
			Since: time.Now().Add(-80 * time.Second),
		},
		Verdict: inspect.Verdict{
			Wrong:  "Nothing is wrong: the task waits for its lock.",
			Clears: "It runs once the 6 tasks before it are done.",
			Do:     "To see the lock: lockctl show order:536365",
		},
	}
}

// Each page in light, dark and narrow windows: all fits, nothing fails, and nothing comes from elsewhere.
func TestPictures(t *testing.T) {
	t.Parallel()
	s := shop()
	s.tasks["audit-7"] = example()
	address := serve(t, lockpage.Config{Source: s, Dashboard: "/dashboard", Revoke: mayRevoke})
	for name, window := range map[string]browsertest.Window{"light": wide, "dark": dark, "narrow": narrow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := browsertest.Open(t, address+"/locks", window)
			renew(page)
			for _, look := range []struct{ name, path, text string }{
				{"list", "/locks", "order:536365"},
				{"resource", "/locks/resource?name=order:536365", "Who waits"},
				{"task", "/locks/task?id=audit-7", "Nothing is wrong"},
			} {
				page.Go(address + look.path)
				page.AwaitText(look.text)
				wantNoOverflow(t, page, window)
				wantContrast(t, page)
				page.Picture(look.name+"-"+name, true)
			}
			if have := page.Errors(); len(have) != 0 {
				t.Errorf("want no errors, have %q", have)
			}
			for _, url := range page.Requests() {
				expect.That(t, strings.HasPrefix(url, address+"/"), "want no request to another server, have %s", url)
			}
		})
	}
}

// wantContrast fails if a text is hard to read: WCAG wants a contrast of 4.5 between a text and
// what is behind it.
func wantContrast(t *testing.T, page *browsertest.Page) {
	t.Helper()
	var poor []string
	page.Eval(`(() => {
		const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
		const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$|transparent/.test(c)) return c } return "rgb(255, 255, 255)" };
		const poor = [];
		for (const e of document.querySelectorAll("main *, header *")) {
			if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
			const style = getComputedStyle(e), a = light(e instanceof SVGElement ? style.fill : style.color), b = light(behind(e));
			const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
			if (ratio < 4.5) poor.push(e.tagName + "." + e.getAttribute("class") + " " + ratio.toFixed(2) + " " + e.textContent.slice(0, 40));
		}
		return poor })()`, &poor)
	expect.That(t, len(poor) == 0, "want a contrast of 4.5, have %q", poor)
}

// wantNoOverflow fails if one has to scroll sideways.
func wantNoOverflow(t *testing.T, page *browsertest.Page, window browsertest.Window) {
	t.Helper()
	var have int
	if page.Eval(`document.documentElement.scrollWidth`, &have); have > window.Width {
		t.Errorf("want all in %d pixels, have %d", window.Width, have)
	}
}
