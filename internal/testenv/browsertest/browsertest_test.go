package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sidingq/siding/internal/testenv/browsertest"
)

// page is drawn by a script with what it fetches, as a dashboard's is.
const page = `<!doctype html><title>t</title><style>body{background:#f00}</style><p id=p>loading</p>
<script>
fetch("/data").then(r => r.text()).then(s => { document.getElementById("p").textContent = s })
</script>`

// serve returns the address of a page whose data is there from the n-th look on.
func serve(t *testing.T, n int64) string {
	t.Helper()
	var looks atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, page)
	})
	mux.HandleFunc("/data", func(w http.ResponseWriter, _ *http.Request) {
		if looks.Add(1) < n {
			_, _ = fmt.Fprint(w, "not yet")
			return
		}
		_, _ = fmt.Fprint(w, `waiting for  "order:1" & <nobody>`)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL + "/"
}

func TestTextIsWhatThePageShows(t *testing.T) {
	t.Parallel()
	have := browsertest.Text(t, serve(t, 1), `"order:1"`)
	if want := `t waiting for "order:1" & <nobody>`; have != want {
		t.Errorf("want %q, have %q", want, have)
	}
}

func TestTextWaitsForWhatIsNotThereYet(t *testing.T) {
	t.Parallel()
	if have := browsertest.Text(t, serve(t, 2), "waiting"); strings.Contains(have, "not yet") {
		t.Errorf("want the second look, have %q", have)
	}
}
