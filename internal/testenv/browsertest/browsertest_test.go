package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/browsertest"
)

// page is drawn by a script with what it fetches, as a dashboard's is.
const page = `<!doctype html><title>t</title><style>body{background:#f00}</style><p id=p>loading</p>
<script>
fetch("/data").then(r => r.text()).then(s => { document.getElementById("p").textContent = s })
</script>`

// serve returns the address of a page whose data comes after a moment.
func serve(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, page)
	})
	mux.HandleFunc("/data", func(w http.ResponseWriter, r *http.Request) {
		_ = sleep.For(r.Context(), 200*time.Millisecond)
		_, _ = fmt.Fprint(w, `waiting for  "order:1" & <nobody>`)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL + "/"
}

func TestPageShowsWhatItsScriptFetches(t *testing.T) {
	t.Parallel()
	page := browsertest.Open(t, serve(t), browsertest.Window{Width: 800, Height: 600})
	page.AwaitText(`"order:1"`)
	if have, want := page.Text(), `waiting for "order:1" & <nobody>`; have != want {
		t.Errorf("want %q, have %q", want, have)
	}
}

// A person types, presses keys and clicks, and a picture shows it.
func TestPageIsUsed(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `<!doctype html><meta name=viewport content="width=device-width"><link rel=icon href=data:><form action=/next><input name=q autofocus><button>Go</button></form>
<p id=k></p><script>document.onkeydown = e => { document.getElementById("k").textContent += e.key + " " }</script>`)
	})
	mux.HandleFunc("/next", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, `<!doctype html><link rel=icon href=data:><p>asked for `+r.FormValue("q")+`<a href="/missing">x</a>`)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	page := browsertest.Open(t, srv.URL+"/", browsertest.Window{Width: 390, Height: 300, Dark: true})
	var dark bool
	if page.Eval(`matchMedia("(prefers-color-scheme: dark)").matches && innerWidth <= 390`, &dark); !dark {
		t.Error("want a narrow and dark window")
	}
	page.Click("input")
	page.Type("orders")
	page.Press("Escape")
	page.Press("?")
	page.AwaitText("Escape ?")
	if picture := page.Screenshot(false); len(picture) < 1000 || string(picture[1:4]) != "PNG" {
		t.Errorf("want a picture, have %d bytes", len(picture))
	}
	page.Click("button")
	page.AwaitText("asked for orders?")
	if have := page.Errors(); len(have) != 0 {
		t.Errorf("want no errors, have %q", have)
	}
	page.Click("a")
	page.Await(`location.pathname === "/missing"`)
	if have := page.Requests(); !slices.Contains(have, srv.URL+"/next?q=orders%3F") || !slices.Contains(have, srv.URL+"/missing") {
		t.Errorf("want all requests, have %q", have)
	}
	if have := page.Errors(); len(have) == 0 || !strings.Contains(have[0], "404") {
		t.Errorf("want the failed request as an error, have %q", have)
	}
}

func TestPageWithoutScripts(t *testing.T) {
	t.Parallel()
	page := browsertest.Open(t, serve(t), browsertest.Window{Width: 800, Height: 600, NoScript: true})
	page.AwaitText("loading")
	if have := page.Text(); have != "loading" {
		t.Errorf("want no script run, have %q", have)
	}
}
