package dashboard

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode"
)

// The page puts names of queues and ids of tasks into URLs as they are. A browser folds a/../b,
// cuts off what follows ? or #, and reads \ as /. So a click on a task with such an id could do
// something else, such as deleting all tasks. Siding's clients refuse such names, but any
// client of asynq can store them. So the page gets a mark in the place of each such character.
// The server refuses requests with a mark in them, and folded ones.

// mark is Unicode's replacement character.
const mark = '\uFFFD'

// inURLs are the characters that mean something in a URL.
const inURLs = `/?#%\`

// shown returns a name as the page gets it: one whose URL no browser changes.
func shown(name string) string {
	outer := len(name) - len(strings.TrimLeftFunc(name, unicode.IsSpace))
	end := len(strings.TrimRightFunc(name, unicode.IsSpace))
	dots := name == "." || name == ".."
	var b strings.Builder
	for i, r := range name {
		if dots || i < outer || i >= end || unicode.IsControl(r) || strings.ContainsRune(inURLs, r) {
			r = mark
		}
		b.WriteRune(r)
	}
	return b.String()
}

// isFolded reports whether somebody has folded the path on the way, or the next server would.
func isFolded(u *url.URL) bool {
	clean := path.Clean(u.Path)
	return clean != u.Path && clean+"/" != u.Path || strings.ContainsAny(u.Path, inURLs[1:]+string(mark)) ||
		strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
}

// serveAPI has api answer a request, and shows the names in its answer.
func serveAPI(api http.Handler, w http.ResponseWriter, r *http.Request) {
	kept := &reply{head: w.Header(), status: http.StatusOK}
	api.ServeHTTP(kept, r)
	text := kept.Bytes()
	if r.Method == http.MethodGet && kept.status == http.StatusOK {
		text = withNamesShown(text)
	}
	w.WriteHeader(kept.status)
	_, _ = w.Write(text) // fails only when the asker has gone
}

// withNamesShown returns a JSON text with all names shown; another text as it is.
func withNamesShown(text []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return text
	}
	changed, err := json.Marshal(showNames(v, ""))
	if err != nil {
		return text
	}
	return append(changed, '\n')
}

// showNames returns v, the value of a key, with all names in it shown.
func showNames(v any, key string) any {
	switch v := v.(type) {
	case string:
		switch key {
		case "id", "task_id", "queue", "group":
			return shown(v)
		}
	case []any:
		for i := range v {
			v[i] = showNames(v[i], key)
		}
	case map[string]any:
		byQueue := key == "stats" || key == "queue_priorities"
		all := make(map[string]any, len(v))
		for name, value := range v {
			if value = showNames(value, name); byQueue {
				name = shown(name)
			}
			all[name] = value
		}
		return all
	}
	return v
}

// A reply is an [http.ResponseWriter] that keeps what it gets.
type reply struct {
	bytes.Buffer

	head   http.Header
	status int
}

// Header returns the head.
func (r *reply) Header() http.Header { return r.head }

// WriteHeader sets the status.
func (r *reply) WriteHeader(status int) { r.status = status }
