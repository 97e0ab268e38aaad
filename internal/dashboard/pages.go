package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/lockpage"
)

var (
	// foreign finds the links whose target is another server.
	foreign = regexp.MustCompile(`<link[^>]*\shref="https?://[^>]*>`)
	// inline finds the scripts in the page itself; those with a src have a
	// space after the name.
	inline = regexp.MustCompile(`(?s)<script>(.*?)</script>`)
)

// newPages returns asynqmon with a front page that needs no other server. The page has the typeface, and links to the Locks pages.
func newPages(mon http.Handler) (http.Handler, error) {
	front := &reply{head: make(http.Header)}
	mon.ServeHTTP(front, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: RootPath + "/"}})
	if !bytes.Contains(front.Bytes(), []byte("</html>")) {
		return nil, fmt.Errorf("dashboard: front page: want HTML, have status %d and %d bytes", front.status, front.Len())
	}
	index := foreign.ReplaceAll(front.Bytes(), nil)
	index = bytes.Replace(index, []byte("</head>"), fmt.Appendf(nil, `<link rel="stylesheet" href="%s"/><script defer src="%s"></script></head>`,
		lockpage.FileURL("roboto.css"), lockpage.FileURL("asynqmon.js")), 1)
	policy := policy(index)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		below := strings.TrimPrefix(r.URL.Path, RootPath)
		switch {
		case strings.HasPrefix(below, "/api/"):
			serveAPI(mon, w, r)
		case isAsset(below):
			mon.ServeHTTP(w, r)
		// Every other path is a page of asynqmon's. The script in the front page makes them all.
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "want GET", http.StatusMethodNotAllowed)
		default:
			http.ServeContent(w, r, "index.html", time.Time{}, bytes.NewReader(index))
		}
	}), nil
}

// policy lets the page run its own scripts, and talk to its own server. Scripts in the page are
// known by their hashes. A script makes the style sheets at run time, so they have no hashes.
func policy(index []byte) string {
	scripts := []string{"script-src 'self'"}
	for _, script := range inline.FindAllSubmatch(index, -1) {
		sum := sha256.Sum256(script[1])
		scripts = append(scripts, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	return strings.Join([]string{
		"default-src 'none'",
		strings.Join(scripts, " "),
		"style-src 'self' 'unsafe-inline'",
		"img-src 'self' data:",
		"font-src 'self' data:",
		"connect-src 'self'",
		"manifest-src 'self'",
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
	}, "; ")
}

// isAsset tells asynqmon's files (/static/..., /favicon.ico) from its pages. A queue's name may
// have a dot, too, but is never the first element.
func isAsset(below string) bool {
	return strings.HasPrefix(below, "/static/") || path.Dir(below) == "/" && path.Ext(below) != ""
}
