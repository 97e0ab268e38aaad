package lockpage_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/lockpage"
	"github.com/sidingq/siding/internal/testenv/browsertest"
	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestFilterAndKeys(t *testing.T) {
	t.Parallel()
	page := browsertest.Open(t, serve(t, lockpage.Config{Source: shop()})+"/locks", wide)
	renew(page)
	page.Press("/")
	page.Type("stock:5363 worker-2")
	page.Await(`location.search === "?q=stock%3A5363+worker-2"`)
	page.Await(`document.querySelectorAll("tbody tr").length === 1`)
	page.AwaitText("stock:536372")
	page.Await(`document.activeElement.id === "q" && document.activeElement.value === "stock:5363 worker-2"`)
	page.Press("ArrowDown")
	page.Await(`document.activeElement.textContent === "stock:536372"`)
	page.Press("Enter")
	page.Await(`location.pathname === "/locks/resource" && document.readyState === "complete"`)
	page.AwaitText("Resource stock:536372")
	page.AwaitText("65 waiters, in order")
}

func TestKeysMoveThroughTheList(t *testing.T) {
	t.Parallel()
	page := browsertest.Open(t, serve(t, lockpage.Config{Source: shop()})+"/locks", wide)
	renew(page)
	for _, step := range []struct{ key, want string }{
		{"j", "order:536365"}, {"j", "stock:536372"}, {"ArrowDown", "account:536379"}, {"k", "stock:536372"}, {"ArrowUp", "order:536365"}, {"k", "order:536365"},
	} {
		page.Press(step.key)
		page.Await(fmt.Sprintf(`document.activeElement.textContent === %q`, step.want))
	}
	page.Press("?")
	page.Await(`document.getElementById("help").open`)
	page.Picture("help", true)
	page.Press("Escape")
	page.Await(`!document.getElementById("help").open`)
	page.Press("j")
	page.Press("Enter")
	page.Await(`location.pathname === "/locks/resource" && document.readyState === "complete"`)
	page.AwaitText("Who waits")
	page.Press("Escape")
	page.Await(`location.pathname === "/locks"`)
}

// The page renews itself, and keeps the focus and what one types.
func TestLive(t *testing.T) {
	t.Parallel()
	s := shop()
	page := browsertest.Open(t, serve(t, lockpage.Config{Source: s})+"/locks", wide)
	renew(page)
	page.Press("j")
	page.Press("j")
	page.Eval(`window.same = true`, nil)
	s.put(inspect.Lock{Resource: "order:new", State: inspect.Held, Waiting: 999, OldestWait: 1e12})
	page.AwaitText("order:new")
	page.Await(`window.same && document.activeElement.textContent === "stock:536372" && document.activeElement.isConnected`)
}

// What a person presses stays where it is until it is let go.
func TestLiveDuringAClick(t *testing.T) {
	t.Parallel()
	s := shop()
	page := browsertest.Open(t, serve(t, lockpage.Config{Source: s})+"/locks", wide)
	renew(page)
	page.Eval(`window.row = document.querySelector("[data-row]"); document.dispatchEvent(new PointerEvent("pointerdown"))`, nil)
	s.put(inspect.Lock{Resource: "order:new", State: inspect.Held, Waiting: 999, OldestWait: 1e12})
	asked := s.count("held")
	expect.Eventually(t, "three more pages", func() bool { return s.count("held") >= asked+3 })
	var connected bool
	page.Eval(`window.row.isConnected`, &connected)
	expect.That(t, connected, "want what is pressed to stay, have it replaced")
	page.Eval(`document.dispatchEvent(new PointerEvent("pointerup"))`, nil)
	page.AwaitText("order:new")
}

func TestRelease(t *testing.T) {
	t.Parallel()
	s := newSource(inspect.Lock{Resource: "order:<b>1</b>", State: inspect.Held, Holder: "audit a1 on host (pid 1)", Fence: 7, Since: time.Now(), Left: 9e9})
	var calls atomic.Int64
	cfg := lockpage.Config{Source: s, Revoke: func(_ context.Context, resource string, _ int64, by, reason string) error {
		calls.Add(1)
		s.put(inspect.Lock{Resource: resource, State: inspect.Free, Revoked: &inspect.Revocation{At: time.Now(), By: by, Reason: reason, Holder: "audit a1 on host (pid 1)"}})
		return nil
	}}
	page := browsertest.Open(t, serve(t, cfg)+"/locks", wide)
	page.Click("[data-row]")
	page.AwaitText("Resource order:<b>1</b>")
	page.Click("summary")
	page.Click("button.danger") // without a reason the browser does not send the form
	page.Click("#reason")
	page.Type("its <handler> hangs")
	page.AwaitText("live") // the page renews itself beside what one types
	page.Await(`document.getElementById("reason").value === "its <handler> hangs"`)
	page.Picture("release", true)
	page.Click("button.danger") // without the confirmation, neither
	page.Click("input[type=checkbox]")
	expect.Equal(t, "calls before it is confirmed", calls.Load(), 0)
	page.Click("button.danger")
	page.AwaitText("From audit a1 on host (pid 1), by ann")
	page.AwaitText("“its <handler> hangs”")
	page.Picture("released", true)
	expect.Equal(t, "calls", calls.Load(), 1)
}

// Somebody else gets the lock while a person fills in the form. The person sees who has it now.
func TestReleaseOfAnEarlierHolder(t *testing.T) {
	t.Parallel()
	s := newSource(inspect.Lock{Resource: "order:1", State: inspect.Held, Holder: "audit a1 on host (pid 1)", Fence: 7})
	page := browsertest.Open(t, serve(t, lockpage.Config{Source: s, Revoke: func(context.Context, string, int64, string, string) error { return errRefused }})+"/locks/resource?name=order:1", wide)
	page.Click("summary")
	page.Click("#reason")
	page.Type("it hangs")
	page.Click("input[type=checkbox]")
	s.put(inspect.Lock{Resource: "order:1", State: inspect.Held, Holder: "audit a2 on host (pid 1)", Fence: 8})
	page.Click("button.danger")
	page.AwaitText("Nothing has changed: the lock has another holder by now, or none.")
	page.AwaitText("Take the lock from audit a2")
	renew(page)
	page.AwaitText("Nothing has changed: the lock has another holder by now, or none.")
	page.Picture("conflict", true)
	page.Await(`document.getElementById("reason").value === "it hangs"`)
	page.Click("input[type=checkbox]")
	page.Click("button.danger")
	page.AwaitText("The lock may not have been taken from its holder: not now")
	s.put(inspect.Lock{Resource: "order:1", State: inspect.Free})
	page.AwaitText("free")
}

func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	page := browsertest.Open(t, serve(t, lockpage.Config{Source: shop()})+"/locks", browsertest.Window{Width: 1280, Height: 900, NoScript: true})
	page.AwaitText("order:536365")
	page.Click("#q")
	page.Type("worker-2")
	page.Click(".search button")
	page.Await(`location.search === "?q=worker-2&sort=oldest" && document.querySelector("caption").textContent.includes("worker-2")`)
	page.Click("[data-row]")
	page.AwaitText("Who waits")
}

// The page says that Redis is away, keeps what it has shown, and goes on trying.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	s := shop()
	page := browsertest.Open(t, serve(t, lockpage.Config{Source: s})+"/locks", wide)
	renew(page)
	s.fail(errAway)
	page.AwaitText("Redis does not answer.")
	page.AwaitText("trying again")
	if have := page.Text(); !strings.Contains(have, "order:536365") {
		t.Errorf("want the last list kept, have %s", have)
	}
	page.Picture("away", true)
	s.fail(nil)
	page.AwaitText("live")
	if have := page.Text(); strings.Contains(have, "does not answer") {
		t.Errorf("want nothing said any more, have %s", have)
	}
}

// The page says that the worker is gone, and keeps what it has shown.
func TestWorkerAway(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(open(t, lockpage.Config{Source: shop()}))
	t.Cleanup(srv.Close)
	page := browsertest.Open(t, srv.URL+"/locks", wide)
	renew(page)
	srv.Close()
	page.AwaitText("The worker does not answer.")
	page.AwaitText("order:536365")
}

func TestOpenedWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	s := shop()
	s.fail(errAway)
	page := browsertest.Open(t, serve(t, lockpage.Config{Source: s})+"/locks?q=order:5363", wide)
	page.AwaitText("Redis does not answer.")
	page.Await(`document.body.dataset.page === "error"`)
	page.AwaitText("trying again") // and not live
	page.Picture("away-first", true)
	s.fail(nil)
	page.AwaitText("order:536365")
	page.Await(`document.getElementById("q").value === "order:5363"`)
}
