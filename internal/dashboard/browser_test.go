package dashboard_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/testenv/browsertest"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// serve returns the address of a handler.
func serve(t *testing.T, h *dashboard.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// asynqmon's page shows its typeface, which comes from the worker as everything else does.
func TestFrontPageInABrowser(t *testing.T) {
	t.Parallel()
	address := serve(t, setup(t, dashboard.Config{}))
	page := browsertest.Open(t, address+"/dashboard/", browsertest.Window{Width: 1280, Height: 800})
	page.AwaitText("default")
	page.Await(`[...document.fonts].some(f => f.family.includes("Roboto") && f.status === "loaded")`)
	for _, url := range page.Requests() {
		expect.That(t, strings.HasPrefix(url, address+"/"), "want no request to another server, have %s", url)
	}
	if have := page.Errors(); len(have) != 0 {
		t.Errorf("want no errors, have %q", have)
	}
	page.Await(`document.getElementById("siding-locks")`)
	page.Picture("asynqmon", false)
}

func TestLinksToTheLocksPages(t *testing.T) {
	t.Parallel()
	address := serve(t, setup(t, dashboard.Config{}))
	page := browsertest.Open(t, address+"/dashboard/", browsertest.Window{Width: 1280, Height: 800})
	page.Await(`document.querySelector("#siding-locks a[href='/locks']")`)
	var look struct {
		Text              string
		Count             int
		Mine, Other, Here string // the classes of a link
	}
	const ask = `(() => { const of = href => document.querySelector("nav a[href='" + href + "'], li a[href='" + href + "']").className;
		return {Text: document.getElementById("siding-locks").innerText.trim(), Count: document.querySelectorAll("#siding-locks").length,
			Mine: of("/locks"), Other: of("/dashboard/servers"), Here: of("/dashboard/")} })()`
	if page.Eval(ask, &look); look.Text != "Locks" || look.Count != 1 || look.Mine != look.Other || look.Mine == look.Here {
		t.Errorf("want one link that looks like those to other pages, have %+v", look)
	}
	page.Go(address + "/dashboard/queues/default/tasks/one")
	page.AwaitText("Its resource and lock")
	page.Await(`document.getElementById("siding-task").getAttribute("href") === "/locks/task?queue=default&id=one"`)
	page.Picture("asynqmon-task", false)
	page.Go(address + "/dashboard/queues/default/tasks/" + oddID)
	page.Await(`document.getElementById("siding-task")?.getAttribute("href") === "/locks/task?queue=default&id=a%26b%3Bc%2Bd"`)
	page.Click(`a[href="/dashboard/"]`) // drawn by React, without another page
	page.Await(`!document.getElementById("siding-task") && document.getElementById("siding-locks")`)
	page.Click("#siding-locks a")
	page.Await(`location.pathname === "/locks"`)
	page.AwaitText("No lock is held")
}
