package webfiles_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sidingq/siding/internal/webfiles"
)

func ask(t *testing.T, h http.Handler, method, url string, edits ...func(http.Header)) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	for _, edit := range edits {
		edit(r.Header)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestFiles(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{"web/page.css": {Data: []byte("p{}")}, "web/LICENSE": {Data: []byte("free")}}
	f, err := webfiles.New(fsys, "web", "/files")
	if err != nil {
		t.Fatal(err)
	}
	url, err := f.URL("page.css")
	if err != nil || !strings.HasPrefix(url, "/files/page.css?v=") {
		t.Fatalf("want an address with a version, have %q, %v", url, err)
	}
	if _, err := f.URL("other.css"); err == nil || !strings.Contains(err.Error(), "other.css") {
		t.Errorf("want an error that names the file, have %v", err)
	}
	reply := ask(t, f, http.MethodGet, url)
	text, err := io.ReadAll(reply.Body)
	if err != nil || string(text) != "p{}" || reply.Header.Get("Content-Type") != "text/css; charset=utf-8" || !strings.Contains(reply.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("want the file for a year, have %s %q %v, %v", text, reply.Status, reply.Header, err)
	}
	plain := ask(t, f, http.MethodGet, "/files/page.css")
	if have := plain.Header.Get("Cache-Control"); !strings.Contains(have, "no-cache") {
		t.Errorf("without a version: want the browser to ask again, have %q", have)
	}
	again := ask(t, f, http.MethodGet, "/files/page.css", func(h http.Header) { h.Set("If-None-Match", plain.Header.Get("ETag")) })
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("with the same copy: want 304, have %s", again.Status)
	}
	for url, want := range map[string]int{"/files/LICENSE": 404, "/files/": 404, "/files/../page.css": 404} {
		if have := ask(t, f, http.MethodGet, url).StatusCode; have != want {
			t.Errorf("%s: want %d, have %d", url, want, have)
		}
	}
	if have := ask(t, f, http.MethodPost, url).StatusCode; have != http.StatusMethodNotAllowed {
		t.Errorf("POST: want 405, have %d", have)
	}
	if _, err := webfiles.New(fsys, "none", "/files"); err == nil {
		t.Error("no such folder: want an error, have none")
	}
}

// A changed file has another address, or browsers would show the old one for a year.
func TestChangedFileHasAnotherAddress(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, text := range []string{"a", "b"} {
		f, err := webfiles.New(fstest.MapFS{"web/a.js": {Data: []byte(text)}}, "web", "/files")
		if err != nil {
			t.Fatal(err)
		}
		url, err := f.URL("a.js")
		if err != nil {
			t.Fatal(err)
		}
		seen[url] = true
	}
	if len(seen) != 2 {
		t.Errorf("want two addresses, have %v", seen)
	}
}

func TestFont(t *testing.T) {
	t.Parallel()
	f, err := webfiles.Font("/font/")
	if err != nil {
		t.Fatal(err)
	}
	sheet, err := io.ReadAll(ask(t, f, http.MethodGet, f.Path()+webfiles.FontSheet).Body)
	if err != nil {
		t.Fatal(err)
	}
	urls := regexp.MustCompile(`url\(([^)]*)\)`).FindAllStringSubmatch(string(sheet), -1)
	if len(urls) != 4 {
		t.Fatalf("want four weights, have %q", urls)
	}
	for _, url := range urls {
		reply := ask(t, f, http.MethodGet, f.Path()+url[1])
		text, err := io.ReadAll(reply.Body)
		if err != nil || reply.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), "wOF2") || !strings.Contains(reply.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: want a font for a year, have %s, %d bytes, %v", url[1], reply.Status, len(text), err)
		}
	}
}
