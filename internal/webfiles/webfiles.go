// Package webfiles serves files that are embedded in the program: scripts, style sheets, and the
// typeface of the worker's pages.
package webfiles

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// Files are the files of one folder, by their names. It serves no list of them.
type Files struct {
	path string // of the folder in URLs, with a slash at its end
	all  map[string]file
}

type file struct {
	text []byte
	hash string
}

// types has the content type of each file that is served. Other files, such as licences, are not.
var types = map[string]string{
	".css":   "text/css; charset=utf-8",
	".js":    "text/javascript; charset=utf-8",
	".svg":   "image/svg+xml",
	".woff2": "font/woff2",
}

// New returns the files of folder dir in fsys, for requests whose path begins with urlPath. An
// error means that the folder cannot be read.
func New(fsys fs.FS, dir, urlPath string) (*Files, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	f := &Files{path: strings.TrimSuffix(urlPath, "/") + "/", all: map[string]file{}}
	for _, entry := range entries {
		if types[path.Ext(entry.Name())] == "" {
			continue
		}
		text, err := fs.ReadFile(fsys, path.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		f.all[entry.Name()] = file{text, hex.EncodeToString(sum[:8])}
	}
	return f, nil
}

// Path returns the path of the folder in URLs, with a slash at its end.
func (f *Files) Path() string { return f.path }

// URL returns the address of a file on this server. A changed file has another address. An error
// means that there is no such file.
func (f *Files) URL(name string) (string, error) {
	one, ok := f.all[name]
	if !ok {
		return "", fmt.Errorf("webfiles: no file %s in %s", name, f.path)
	}
	return f.path + name + "?v=" + one.hash, nil
}

// ServeHTTP serves a file. A browser keeps the file for a year if the address is one of [Files.URL].
// Otherwise the browser asks each time whether its copy is still good.
func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, f.path)
	one, ok := f.all[name]
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "want GET", http.StatusMethodNotAllowed)
		return
	}
	keep := "private, no-cache"
	if r.URL.Query().Has("v") {
		keep = "private, max-age=31536000, immutable"
	}
	h := w.Header()
	h.Set("Cache-Control", keep)
	h.Set("Content-Type", types[path.Ext(name)])
	h.Set("ETag", `"`+one.hash+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(one.text))
}

//go:embed font
var fontFiles embed.FS

// FontSheet is the style sheet among the files of [Font] that makes the typeface known.
const FontSheet = "roboto.css"

// Font returns the files of the typeface Roboto, for requests whose path begins with urlPath.
func Font(urlPath string) (*Files, error) { return New(fontFiles, "font", urlPath) }
