package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/browsertest"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// Tests want no errors, no requests to other servers, and a window that is dark or runs no scripts. They would pass if
// a page told no errors and no requests, or were as usual.
func TestWhatOthersRelyOn(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, `<!doctype html><meta name=viewport content="width=device-width"><link rel=icon href=data:><p id=p>loading</p>
<script>fetch("/missing").then(r => { document.getElementById("p").textContent = "status " + r.status; throw Error("thrown") })</script>`)
	}))
	t.Cleanup(srv.Close)
	page := browsertest.Open(t, srv.URL+"/", browsertest.Window{Width: 390, Height: 300, Dark: true})
	page.AwaitText("status 404")
	var dark bool
	if page.Eval(`matchMedia("(prefers-color-scheme: dark)").matches && innerWidth <= 390`, &dark); !dark {
		t.Error("want a narrow and dark window")
	}
	if have := page.Requests(); !slices.Contains(have, srv.URL+"/missing") {
		t.Errorf("want all requests, have %q", have)
	}
	expect.Eventually(t, "the failed request and the exception as errors", func() bool {
		have := strings.Join(page.Errors(), "\n")
		return strings.Contains(have, "404") && strings.Contains(have, "thrown")
	})
	page = browsertest.Open(t, srv.URL+"/", browsertest.Window{Width: 800, Height: 600, NoScript: true})
	page.AwaitText("loading")
	if have := page.Text(); have != "loading" {
		t.Errorf("want no script run, have %q", have)
	}
}
