package lockpage_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/lockpage"
	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestFiles(t *testing.T) {
	t.Parallel()
	h := open(t, lockpage.Config{Source: shop()})
	ask := func(method, url, etag string) (*http.Response, string) {
		r := httptest.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		r.Header.Set("If-None-Match", etag)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		text := expect.Value(io.ReadAll(w.Result().Body))(t)
		return w.Result(), string(text)
	}
	for name, kind := range map[string]string{"locks.css": "text/css; charset=utf-8", "locks.js": "text/javascript; charset=utf-8", "asynqmon.js": "text/javascript; charset=utf-8"} {
		reply, text := ask(http.MethodGet, lockpage.FileURL(name), "")
		expect.That(t, text != "" && reply.Header.Get("Content-Type") == kind && strings.Contains(reply.Header.Get("Cache-Control"), "immutable"), "%s: want the file for a year, have %s %v", name, reply.Status, reply.Header)
		plain, _ := ask(http.MethodGet, "/locks/files/"+name, "")
		if have := plain.Header.Get("Cache-Control"); !strings.Contains(have, "no-cache") {
			t.Errorf("%s without a version: want the browser to ask again, have %q", name, have)
		}
		if again, _ := ask(http.MethodGet, "/locks/files/"+name, plain.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s with the same copy: want 304, have %s", name, again.Status)
		}
	}
	_, sheet := ask(http.MethodGet, lockpage.FileURL("roboto.css"), "")
	fonts := regexp.MustCompile(`url\(([^)]*)\)`).FindAllStringSubmatch(sheet, -1)
	expect.Need(t, len(fonts) == 4, "want four weights, have %q", fonts)
	for _, font := range fonts {
		if reply, text := ask(http.MethodGet, "/locks/files/"+font[1], ""); !strings.HasPrefix(text, "wOF2") || !strings.Contains(reply.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: want a font for a year, have %s, %d bytes", font[1], reply.Status, len(text))
		}
	}
	for url, want := range map[string]int{"/locks/files/LICENSE-roboto": 404, "/locks/files/": 404, "/locks/files/../locks.css": 307, "/locks/files/none.css": 404} {
		if reply, _ := ask(http.MethodGet, url, ""); reply.StatusCode != want {
			t.Errorf("%s: want %d, have %s", url, want, reply.Status)
		}
	}
}
