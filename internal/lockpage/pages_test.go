package lockpage_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/lockpage"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// get asks for a page.
func get(t *testing.T, h http.Handler, address string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody))
	return w
}

// wantTexts wants texts in a page, and those with a "!" before them not.
func wantTexts(t *testing.T, h http.Handler, address string, texts ...string) (page string) {
	t.Helper()
	page = get(t, h, address).Body.String()
	for _, text := range texts {
		text, no := strings.CutPrefix(text, "!")
		expect.That(t, strings.Contains(page, text) != no, "%s: want %q in it: %t, have %s", address, text, !no, page)
	}
	return page
}

// rows returns the resources that a list shows, in order.
func rows(page string) []string {
	var all []string
	for _, row := range regexp.MustCompile(`data-key="r:([^"]*)"`).FindAllStringSubmatch(page, -1) {
		all = append(all, html.UnescapeString(row[1]))
	}
	return all
}

func TestListFiltersAndSorts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := open(t, lockpage.Config{Source: newSource(
		inspect.Lock{Resource: "order:0", State: inspect.Free, Waiting: 2, OldestWait: 2e9},
		inspect.Lock{Resource: "order:1", State: inspect.Held, Holder: "audit a1 on host1 (pid 1)", Waiting: 3, OldestWait: 5e9, Since: now.Add(-time.Second), Left: 3e9},
		inspect.Lock{Resource: "order:2", State: inspect.Held, Holder: "audit a2 on host2 (pid 2)", Waiting: 1, OldestWait: 9e9, Since: now.Add(-time.Minute), Left: 9e9},
		inspect.Lock{Resource: "stock:3", State: inspect.Reserved, Task: &inspect.Task{Queue: "bulk", ID: "d3", Kind: "deduct"}, Waiting: 7, OldestWait: 1e9, Since: now.Add(-time.Hour), Left: 1e9},
		inspect.Lock{Resource: "stock:4", State: inspect.Foreign, Holder: "another program", Endless: true},
		inspect.Lock{Resource: "api", State: inspect.Held, Holder: "2 holders", Permits: []inspect.Permit{
			{State: inspect.Held, Holder: "sync a7 on web-1 (pid 4)"}, {State: inspect.Held, Holder: "sync b2 on web-2 (pid 5)"},
		}},
	)})
	for query, want := range map[string][]string{
		"":                       {"order:2", "order:1", "order:0", "stock:3", "api", "stock:4"},
		"?sort=unknown":          {"order:2", "order:1", "order:0", "stock:3", "api", "stock:4"},
		"?sort=waiters":          {"stock:3", "order:1", "order:0", "order:2", "api", "stock:4"},
		"?sort=since":            {"stock:3", "order:2", "order:1", "api", "order:0", "stock:4"},
		"?sort=left":             {"stock:3", "order:1", "order:2", "api", "order:0", "stock:4"},
		"?sort=resource":         {"api", "order:0", "order:1", "order:2", "stock:3", "stock:4"},
		"?q=order":               {"order:2", "order:1", "order:0"},
		"?q=ORDER+host1":         {"order:1"},
		"?q=bulk":                {"stock:3"},
		"?q=d3":                  {"stock:3"},
		"?q=a7":                  {"api"}, // found by each of its holders
		"?q=web-2":               {"api"},
		"?q=deduct":              {"stock:3"},
		"?q=foreign":             {"stock:4"},
		"?q=stock&sort=resource": {"stock:3", "stock:4"},
		"?q=nothing":             nil,
	} {
		reply := get(t, h, "/locks"+query)
		if have := rows(reply.Body.String()); reply.Code != http.StatusOK || !slices.Equal(have, want) {
			t.Errorf("%q: want %q, have %d %q", query, want, reply.Code, have)
		}
	}
	wantTexts(t, h, "/locks?q=a9", `href="/locks/task?id=a9"`, `href="/locks/resource?name=a9"`)
}

// The title of a column leads to the list in the order of that column.
func TestColumnsSort(t *testing.T) {
	t.Parallel()
	h := open(t, lockpage.Config{Source: newSource(inspect.Lock{Resource: "order:1", State: inspect.Held, Since: time.Now()})})
	list := get(t, h, "/locks").Body.String()
	for title, want := range map[string]string{
		"Resource": "resource", "Held for": "held longest", "Lease left": "least lease left", "Waiting": "most waiting", "Longest wait": "longest wait",
	} {
		link := regexp.MustCompile(`<a href="([^"]*)">` + title + `</a></th>`).FindStringSubmatch(list)
		expect.Need(t, link != nil, "%s: want a link, have %s", title, list)
		wantTexts(t, h, html.UnescapeString(link[1]), "1 lock, by "+want+"</caption>")
	}
}

// A line for a lock without one holder says when it moved. Of other locks the holder tells that.
func TestLineMoved(t *testing.T) {
	t.Parallel()
	since := time.Now().Add(-3 * time.Second)
	for name, tt := range map[string]struct {
		lock  inspect.Lock
		moved bool
	}{
		"free":            {inspect.Lock{State: inspect.Free, Waiting: 2, Fence: since.UnixMicro()}, true},
		"several holders": {inspect.Lock{State: inspect.Held, Waiting: 2, Fence: since.UnixMicro()}, true},
		"one holder":      {inspect.Lock{State: inspect.Held, Waiting: 2, Fence: since.UnixMicro(), Since: since}, false},
		"nobody waits":    {inspect.Lock{State: inspect.Foreign, Fence: since.UnixMicro()}, false},
		"unknown":         {inspect.Lock{State: inspect.Free, Waiting: 2}, false},
	} {
		tt.lock.Resource = "r"
		h := open(t, lockpage.Config{Source: newSource(tt.lock)})
		for _, address := range []string{"/locks", "/locks/resource?name=r"} {
			page := get(t, h, address).Body.String()
			if have := regexp.MustCompile(`moved \d`).MatchString(page); have != tt.moved || have && !regexp.MustCompile(`moved ([3-9]|[1-5]\d)(\.\d)? s ago`).MatchString(page) {
				t.Errorf("%s: %s: want moved %v, 3 s ago or, on a slow machine, some more, have %s", name, address, tt.moved, page)
			}
		}
	}
}

// Names hold anything. A page shows them as they are, and its links lead back to them.
func TestNamesOfAllKinds(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `a/../b`, `?q=1&b=2#c`, `100%2f`, `日本 🚂`, `a+b c`,
		"tab\tand\nline", `{{.}}`, `javascript:alert(1)`, "\u202Ertl", strings.Repeat("long", 300),
	} {
		s := newSource(inspect.Lock{
			Resource: name, State: inspect.Held, Holder: name + " " + name + " on host (pid 1)", Waiting: 1, OldestWait: 1e9,
			Task: &inspect.Task{Queue: name, ID: name, Kind: name}, Worker: &inspect.Worker{Host: name, PID: 1},
			Revoked: &inspect.Revocation{At: time.Now(), By: name, Reason: name, Holder: name},
			Permits: []inspect.Permit{
				{State: inspect.Held, Holder: name, Task: &inspect.Task{Queue: name, ID: name, Kind: name}, Worker: &inspect.Worker{Host: name, PID: 1}},
				{State: inspect.Reserved, Holder: name},
			},
			Lines: []inspect.HeldLine{
				{Task: inspect.Task{Queue: name, ID: name}, Error: name, Stopped: true}, {Task: inspect.Task{Queue: name, ID: name}, Error: name, GoesOn: time.Now()},
			},
			Limit: &inspect.Limit{Pattern: name, By: name, Reason: name},
		})
		s.tasks[name] = inspect.Explanation{
			Task: inspect.Task{Queue: name, ID: name, Kind: name}, State: inspect.StateWaiting, Resource: name, AlsoIn: []string{name},
			LastError: name, Failure: name, Verdict: inspect.Verdict{Wrong: name, Clears: name, Do: name},
			Position: 1, Lock: &inspect.Lock{Resource: name, State: inspect.Held, Holder: name, Task: &inspect.Task{Queue: name, ID: name, Kind: name}},
		}
		h := open(t, lockpage.Config{Source: s, Dashboard: "/dashboard", Revoke: mayRevoke})
		escaped := url.QueryEscape(name)
		for _, address := range []string{
			"/locks", "/locks?q=" + escaped, "/locks/resource?name=" + escaped, "/locks/task?queue=" + escaped + "&id=" + escaped, "/locks?q=none" + escaped, "/locks/task?id=none" + escaped,
		} {
			page := get(t, h, address).Body.String()
			for _, bad := range []string{"<script>alert", "<img", "onerror=alert(1)>", "' onmouse", `href="javascript`} {
				expect.That(t, !strings.Contains(page, bad), "%s: want %q escaped, have %s", address, bad, page)
			}
			expect.That(t, strings.Contains(html.UnescapeString(page), name), "%s: want the name %q shown", address, name)
			for _, link := range regexp.MustCompile(`href="(/locks/(?:resource|task)\?[^"]*)"`).FindAllStringSubmatch(page, -1) {
				target := html.UnescapeString(link[1])
				if strings.Contains(address, "none") || strings.Contains(target, "id=audit-1&") { // a waiter of the source's own
					continue
				}
				if reply := get(t, h, target); reply.Code != http.StatusOK || !strings.Contains(html.UnescapeString(reply.Body.String()), name) {
					t.Errorf("%s: want its link %s to lead to the same name, have %d", address, target, reply.Code)
				}
			}
		}
	}
}

// A task that waits is shown with the holder of its lock, on which worker that is, and whether the worker is gone. What to do has its
// commands apart from the text, so that a person can select one.
func TestTaskThatWaits(t *testing.T) {
	t.Parallel()
	s := newSource()
	s.tasks["t"] = inspect.Explanation{
		Task: inspect.Task{Queue: "q", ID: "t"}, State: inspect.StateWaiting, Position: 1, Verdict: inspect.Verdict{Wrong: "No.", Do: "Wait; `lockctl show 'a <b>'` shows it."},
		Lock: &inspect.Lock{
			State: inspect.Held, Holder: "h on web-1 (pid 7)", Task: &inspect.Task{Queue: "q", ID: "h"}, Worker: &inspect.Worker{Host: "web-1", PID: 7}, Gone: true, Since: time.Now(),
		},
	}
	wantTexts(t, open(t, lockpage.Config{Source: s}), "/locks/task?queue=q&id=t", `<span class="id">h</span>`, "web-1 · pid 7", ">worker gone</span> since ",
		"Wait; <code>lockctl show &#39;a &lt;b&gt;&#39;</code> shows it.</p>")
}

func TestTenThousandResources(t *testing.T) {
	t.Parallel()
	s := newSource()
	for i := range 10_000 {
		s.put(inspect.Lock{Resource: fmt.Sprintf("order:%05d", i), State: inspect.Held, Holder: "somebody", Waiting: 1, OldestWait: inspect.Duration(i) * 1e6})
	}
	h := open(t, lockpage.Config{Source: s})
	have := rows(wantTexts(t, h, "/locks", "The first 200 of 10\u202f000 locks"))
	if len(have) != 200 || have[0] != "order:09999" || have[199] != "order:09800" {
		t.Errorf("want the 200 with the longest waits, have %d from %s", len(have), have[0])
	}
	wantTexts(t, h, "/locks?q=order:00007", "1 lock with “order:00007”, of 10\u202f000")
}

func TestWaitersByThePage(t *testing.T) {
	t.Parallel()
	h := open(t, lockpage.Config{Source: newSource(inspect.Lock{Resource: "r", State: inspect.Held, Waiting: 450, OldestWait: 9e9})})
	wantTexts(t, h, "/locks/resource?name=r", "Waiters 1 to 200 of 450", `name=r&amp;from=201`, "!← previous")
	wantTexts(t, h, "/locks/resource?name=r&from=401", "Waiters 401 to 450 of 450", `from=201`, "!next →")
	wantTexts(t, h, "/locks/resource?name=r&from=-7", "Waiters 1 to 200 of 450") // a position that is none
	h = open(t, lockpage.Config{Source: newSource(inspect.Lock{Resource: "r", State: inspect.Held, Waiting: 20_000, OldestWait: 9e9})})
	wantTexts(t, h, "/locks/resource?name=r&from=30000", "Waiters 1\u202f000 to ", "!next →")
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	held := inspect.Lock{Resource: "order:1", State: inspect.Held, Holder: "audit a1 on host (pid 1)", Fence: 7}
	tests := []struct {
		name   string
		edit   func(*lockpage.Config, *source, url.Values)
		status int
		says   string
		calls  int
	}{
		{"all there", func(*lockpage.Config, *source, url.Values) {}, http.StatusSeeOther, "", 1},
		{"no reason", func(_ *lockpage.Config, _ *source, v url.Values) { v.Set("reason", " ") }, http.StatusUnprocessableEntity, "Give a reason", 0},
		{"long reason", func(_ *lockpage.Config, _ *source, v url.Values) { v.Set("reason", strings.Repeat("x", 501)) }, http.StatusUnprocessableEntity, "500", 0},
		{"two lines", func(_ *lockpage.Config, _ *source, v url.Values) { v.Set("reason", "it\nhangs") }, http.StatusUnprocessableEntity, "one line", 0},
		{"not sure", func(_ *lockpage.Config, _ *source, v url.Values) { v.Del("sure") }, http.StatusUnprocessableEntity, "Confirm", 0},
		{"no name", func(_ *lockpage.Config, _ *source, v url.Values) { v.Del("name") }, http.StatusBadRequest, "Which resource", 0},
		{"read-only", func(c *lockpage.Config, _ *source, _ url.Values) { c.ReadOnly = true }, http.StatusForbidden, "releases no locks", 0},
		{"no revocation", func(c *lockpage.Config, _ *source, _ url.Values) { c.Revoke = nil }, http.StatusNotFound, "lockctl", 0},
		{"another holder by now", func(_ *lockpage.Config, s *source, _ url.Values) {
			later := held
			later.Fence++
			s.put(later)
		}, http.StatusConflict, "another holder by now", 0},
		{"free by now", func(_ *lockpage.Config, s *source, _ url.Values) {
			s.put(inspect.Lock{Resource: "order:1", State: inspect.Free})
		}, http.StatusConflict, "another holder by now", 0},
		{"another program", func(_ *lockpage.Config, s *source, v url.Values) {
			s.put(inspect.Lock{Resource: "order:1", State: inspect.Foreign, Holder: "another program", Fence: 7})
			v.Set("seen", `foreign 7 "another program"`)
		}, http.StatusSeeOther, "", 1},
		{"redis away", func(_ *lockpage.Config, s *source, _ url.Values) { s.fail(errAway) }, http.StatusServiceUnavailable, "does not answer", 0},
		{"refused by redis", func(c *lockpage.Config, _ *source, _ url.Values) {
			c.Revoke = func(context.Context, string, int64, string, string) error { return errRefused }
		}, http.StatusServiceUnavailable, errRefused.Error(), 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var calls []string
			s := newSource(held)
			cfg := lockpage.Config{Source: s, Revoke: func(_ context.Context, resource string, fence int64, by, reason string) error {
				calls = append(calls, fmt.Sprint(resource, " ", fence, " ", by, " ", reason))
				return nil
			}}
			form := url.Values{"name": {"order:1"}, "reason": {"it hangs"}, "sure": {"yes"}, "seen": {seen(t, open(t, cfg))}}
			test.edit(&cfg, s, form)
			w := post(t, open(t, cfg), form)
			expect.That(t, w.Code == test.status && strings.Contains(w.Body.String(), test.says), "want %d %q, have %d %s", test.status, test.says, w.Code, w.Body)
			fence := held.Fence
			if strings.HasPrefix(form.Get("seen"), "foreign") {
				fence = 0 // 7 is that of an earlier lease
			}
			if len(calls) != test.calls || test.calls > 0 && calls[0] != fmt.Sprintf("order:1 %d ann it hangs", fence) {
				t.Errorf("want %d calls, have %q", test.calls, calls)
			}
			expect.That(t, test.status != http.StatusSeeOther || w.Header().Get("Location") == "/locks/resource?name=order%3A1", "want to see the resource, have %s", w.Header().Get("Location"))
			expect.That(t, test.status != http.StatusUnprocessableEntity || form.Get("reason") != "it hangs" || strings.Contains(w.Body.String(), `value="it hangs"`), "want what was typed kept, have %s", w.Body)
		})
	}
}

// seen is the holder that the button on the page of order:1 is for.
func seen(t *testing.T, h http.Handler) string {
	t.Helper()
	return html.UnescapeString(regexp.MustCompile(`name="seen" value="([^"]*)"`).FindStringSubmatch(get(t, h, "/locks/resource?name=order:1").Body.String())[1])
}

// post sends a form to the page of a resource.
func post(t *testing.T, h http.Handler, form url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/locks/resource", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A browser sends each line break of a form as two characters, and has its own characters for bytes that are no text.
func TestRevokeFromHolderWithALineBreak(t *testing.T) {
	t.Parallel()
	calls := 0
	h := open(t, lockpage.Config{
		Source: newSource(inspect.Lock{Resource: "order:1", State: inspect.Held, Holder: "{\n\"by\": \"\xff\"\n}", Fence: 7}),
		Revoke: func(context.Context, string, int64, string, string) error {
			calls++
			return nil
		},
	})
	sent := strings.ReplaceAll(strings.ToValidUTF8(seen(t, h), "\uFFFD"), "\n", "\r\n")
	w := post(t, h, url.Values{"name": {"order:1"}, "reason": {"it hangs"}, "sure": {"yes"}, "seen": {sent}})
	expect.That(t, w.Code == http.StatusSeeOther && calls == 1, "want the lock taken, have %d, and %d calls", w.Code, calls)
}

// The button is there only where it works.
func TestReleaseButton(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		revoke   func(ctx context.Context, resource string, fence int64, by, reason string) error
		readOnly bool
		lock     inspect.Lock
		want     bool
	}{
		"held":                         {mayRevoke, false, inspect.Lock{State: inspect.Held}, true},
		"held in an external store":    {mayRevoke, false, inspect.Lock{State: inspect.Held, Elsewhere: true}, false},
		"taken from this holder":       {mayRevoke, false, inspect.Lock{State: inspect.Revoked, Revoked: &inspect.Revocation{At: time.Now()}}, false},
		"taken from an earlier holder": {mayRevoke, false, inspect.Lock{State: inspect.Held, Revoked: &inspect.Revocation{At: time.Now()}}, true},
		"foreign":                      {mayRevoke, false, inspect.Lock{State: inspect.Foreign}, true},
		"held by one with a permit":    {mayRevoke, false, inspect.Lock{State: inspect.Held, Permits: make([]inspect.Permit, 1)}, true},
		"held by several":              {mayRevoke, false, inspect.Lock{State: inspect.Held, Permits: make([]inspect.Permit, 2)}, false},
		"reserved":                     {mayRevoke, false, inspect.Lock{State: inspect.Reserved}, false},
		"free":                         {mayRevoke, false, inspect.Lock{State: inspect.Free}, false},
		"read-only":                    {mayRevoke, true, inspect.Lock{State: inspect.Held}, false},
		"no revocation":                {nil, false, inspect.Lock{State: inspect.Held}, false},
	} {
		tt.lock.Resource = "r"
		h := open(t, lockpage.Config{Source: newSource(tt.lock), Revoke: tt.revoke, ReadOnly: tt.readOnly})
		page := get(t, h, "/locks/resource?name=r").Body.String()
		button, word := strings.Contains(page, `method="post"`), strings.Contains(page, "http.read_only")
		expect.That(t, button == tt.want && word == tt.readOnly, "%s: want a button: %t, and a word of http.read_only: %t, have %t and %t", name, tt.want, tt.readOnly, button, word)
	}
}

// The pages of a lock with several holders show all of them, and the limit.
func TestHolders(t *testing.T) {
	t.Parallel()
	h := open(t, lockpage.Config{Source: newSource(inspect.Lock{
		Resource: "r", State: inspect.Held, Holder: "2 holders", Waiting: 1, Limit: &inspect.Limit{Pattern: "r", By: "alice", Reason: "stock count"},
		Permits: []inspect.Permit{
			{State: inspect.Held, Holder: "a on b (pid 1)", Fence: 71, Left: 2e9},
			{State: inspect.Revoked, Holder: "c on d (pid 2)", Fence: 72},
			{State: inspect.Reserved, Holder: "w", Task: &inspect.Task{Queue: "q", ID: "t-3"}},
		},
	})})
	wantTexts(t, h, "/locks/resource?name=r", "2 holders", "3 permits held or reserved", "a on b (pid 1)", ">71<", "c on d (pid 2)", ">revoked<", "t-3", ">reserved<",
		">paused</span>, by alice for r at ", "“stock count”")
	wantTexts(t, h, "/locks", "2 holders", "!foreign")
}

// A revoked lock is called so on each page, also if its worker is gone.
func TestRevokedLock(t *testing.T) {
	t.Parallel()
	h := open(t, lockpage.Config{Source: newSource(inspect.Lock{Resource: "r", State: inspect.Revoked, Holder: "x", Gone: true})})
	for _, address := range []string{"/locks", "/locks/resource?name=r"} {
		wantTexts(t, h, address, `">revoked</span>`, `class="state revoked gone"`)
	}
}

func TestPagesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := newSource()
	h := open(t, lockpage.Config{Source: s})
	for address, want := range map[string]int{
		"/locks/resource": http.StatusBadRequest, "/locks/task": http.StatusBadRequest, "/locks/task?id=none": http.StatusNotFound, "/locks/none": http.StatusNotFound, "/locks/": http.StatusFound,
		"/locks/resource?name=free": http.StatusOK, "/locks/files/locks.css": http.StatusOK, "/locks/files/LICENSE-roboto": http.StatusNotFound,
	} {
		if reply := get(t, h, address); reply.Code != want {
			t.Errorf("%s: want %d, have %d", address, want, reply.Code)
		}
	}
	wantTexts(t, h, "/locks/task?queue=low&id=none", "The queue low has no task none.")
	s.fail(errAway)
	h = open(t, lockpage.Config{Source: s})
	for _, address := range []string{"/locks", "/locks/resource?name=r", "/locks/task?id=a"} {
		if reply := get(t, h, address); reply.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: want status 503, have %d", address, reply.Code)
		}
		wantTexts(t, h, address, "Redis does not answer.", "This page tries again by itself. ", "connection refused")
	}
}

// Many visitors ask Redis for the list once a second.
func TestVisitorsShareTheList(t *testing.T) {
	t.Parallel()
	s := newSource(inspect.Lock{Resource: "r", State: inspect.Held})
	h := open(t, lockpage.Config{Source: s})
	begin := time.Now()
	for range 20 {
		get(t, h, "/locks")
	}
	if have, most := s.count("held"), int(time.Since(begin)/time.Second)+1; have > most {
		t.Errorf("want at most %d questions, have %d", most, have)
	}
}

func TestPagesLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	h := open(t, lockpage.Config{Source: shop()})
	for _, address := range []string{"/locks", "/locks/resource?name=order:536365"} {
		reply := get(t, h, address)
		policy := reply.Header().Get("Content-Security-Policy")
		expect.That(t, strings.Contains(policy, "default-src 'none'") && !strings.Contains(policy, "unsafe") && !strings.Contains(policy, "http"), "%s: want a strict policy, have %q", address, policy)
		expect.Equal(t, address+": what the policy forbids", regexp.MustCompile(`(?:href|src)="(?:https?:)?//[^"]*|<script>|style="|\son[a-z]+="`).FindString(reply.Body.String()), "")
		expect.Equal(t, address+": where the page is kept", reply.Header().Get("Cache-Control"), "no-store")
	}
}
