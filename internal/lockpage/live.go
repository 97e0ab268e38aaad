package lockpage

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"
)

const (
	// pulse is how often a page that somebody watches is made anew.
	pulse = time.Second
	// mostWatched bounds how many pages are watched at a time.
	mostWatched = 100
	// sluggish is how long a browser may take to read a page.
	sluggish = 10 * time.Second
)

// live serves a page, and to browsers that ask for events the same page again at each pulse, until they go. Then each
// event is a whole page, so that there is one way to make one, and the script puts its parts in the place of the old ones.
func (h *Handler) live(show http.HandlerFunc) http.HandlerFunc {
	show = h.patient(show)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "text/event-stream" && r.Method == http.MethodGet { // HEAD gets no page, and would wait for it
			h.watch(w, r, show)
		} else {
			show(w, r)
		}
	}
}

// patient makes a page within patience.
func (h *Handler) patient(show http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		show(w, r.WithContext(ctx))
	}
}

// lines makes the lines of a page those of an event.
var lines = strings.NewReplacer("\r", "", "\n", "\ndata: ")

func (h *Handler) watch(w http.ResponseWriter, r *http.Request, show http.HandlerFunc) {
	if h.watched.Add(1) > mostWatched {
		h.watched.Add(-1)
		http.Error(w, "too many pages are watched", http.StatusServiceUnavailable)
		return
	}
	defer h.watched.Add(-1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.ending, cancel)() //nolint:contextcheck // the other end of a watch: that of the server
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx, which would collect what is to arrive now
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for {
		page := Reply{Head: make(http.Header)}
		show(&page, r.WithContext(ctx))
		if ctx.Err() != nil { // and so the page may be one of an error
			return
		}
		_ = control.SetWriteDeadline(time.Now().Add(sluggish))
		_, err := w.Write([]byte("data: " + lines.Replace(page.String()) + "\n\n"))
		if err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// A Reply is an [http.ResponseWriter] that keeps what it gets.
type Reply struct {
	bytes.Buffer

	Head   http.Header
	Status int
}

// Header returns Head.
func (r *Reply) Header() http.Header { return r.Head }

// WriteHeader sets Status.
func (r *Reply) WriteHeader(status int) { r.Status = status }
