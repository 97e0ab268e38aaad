package lockpage

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/lock"
)

// RootPath is the path of the list of locks. The paths of all other pages begin with it.
const RootPath = "/locks"

const (
	// patience is how long one page waits for Redis.
	patience = 5 * time.Second
	// shared is how long one list of locks serves all visitors.
	shared = time.Second
)

// A Source answers the questions of the pages. An [inspect.Inspector] is one.
type Source interface {
	Held(ctx context.Context) (inspect.List, error)
	Show(ctx context.Context, resource string, from, count int) (inspect.Lock, []inspect.Waiter, error)
	Why(ctx context.Context, queue, id string) (inspect.Explanation, error)
	Queues(ctx context.Context) ([]inspect.Queue, error)
	HeldLines(ctx context.Context) (lines []inspect.HeldLine, leftOut int, _ error)
}

// Config configures a [Handler].
type Config struct {
	// Source answers all questions. Required.
	Source Source
	// Revoke takes the lock of a resource from the holder of the lease with this fence, or from any
	// holder if the fence is 0. by names the person who releases the lock, and reason says why. The page
	// shows the error, after which the lock may have been taken or not. Nil leaves the form out.
	Revoke func(ctx context.Context, resource string, fence int64, by, reason string) error
	// ReadOnly refuses to revoke, and leaves the form out.
	ReadOnly bool
	// By names who sends a request, for the record of a revocation. Required.
	By func(*http.Request) string
	// Dashboard is the path of asynq's dashboard, to which tasks have links. Empty for no links.
	Dashboard string
}

//go:embed templates
var templates embed.FS

// A Handler serves the pages.
type Handler struct {
	cfg   Config
	mux   *http.ServeMux
	pages map[string]*template.Template

	mu     sync.Mutex // held while Redis is asked, so that one request asks for all
	list   state
	listed time.Time
}

// New returns the pages for cfg.
func New(cfg Config) *Handler {
	h := &Handler{cfg: cfg, mux: http.NewServeMux(), pages: map[string]*template.Template{}}
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(templates, "templates/layout.html", "templates/parts.html"))
	for _, name := range []string{"list", "resource", "task", "error"} {
		h.pages[name] = template.Must(template.Must(layout.Clone()).ParseFS(templates, "templates/"+name+".html"))
	}
	h.mux.HandleFunc("GET "+filesPath, serveFile)
	h.mux.HandleFunc("GET "+RootPath, patient(h.showList))
	h.mux.HandleFunc("GET "+RootPath+"/resource", patient(h.showResource))
	h.mux.HandleFunc("POST "+RootPath+"/resource", h.revoke)
	h.mux.HandleFunc("GET "+RootPath+"/task", patient(h.showTask))
	h.mux.Handle("GET "+RootPath+"/{$}", http.RedirectHandler(RootPath, http.StatusFound))
	h.mux.HandleFunc(RootPath+"/", func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, http.StatusNotFound, "There is no such page.", "The list of locks has links to all pages.")
	})
	return h
}

// policy lets a page load the worker's own files, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the pages below [RootPath].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", policy)
	h.mux.ServeHTTP(w, r)
}

// patient makes a page within patience.
func patient(show http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		show(w, r.WithContext(ctx))
	}
}

// A page is what each template gets.
type page struct {
	Name, Title string
	Dashboard   string
	At          time.Time
	Tab         string // of the navigation
	Refresh     bool   // without JavaScript, too
	Notice      *notice
	Content     any
}

// A notice says what went wrong, and what to do.
type notice struct{ What, Advice string }

// write writes a page, whole or not at all.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.Name, p.Dashboard, p.At = name, h.cfg.Dashboard, time.Now()
	var text bytes.Buffer
	if err := h.pages[name].ExecuteTemplate(&text, "layout.html", p); err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text.Bytes()) // fails only if the browser has gone
	}
}

// fail writes a page that says what went wrong.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, status int, what, advice string) {
	h.write(w, r, status, "error", page{Title: what, Refresh: status == http.StatusServiceUnavailable, Notice: &notice{what, advice}})
}

// failAsking writes a page about an error of the Source.
func (h *Handler) failAsking(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, lock.ErrResource) {
		h.fail(w, r, http.StatusBadRequest, "No resource can have this name.", "The error is: "+err.Error())
		return
	}
	what := "Redis does not answer."
	if _, refused := errors.AsType[redis.Error](err); refused {
		what = "Redis refuses to answer."
	}
	h.fail(w, r, http.StatusServiceUnavailable, what, "This page tries again by itself. The error is: "+err.Error())
}

// A state is what the list of locks shows.
type state struct {
	inspect.List

	lines        []inspect.HeldLine // those that wait for an operator come first
	linesLeftOut int                // how many more there are
	paused       []inspect.Queue
}

// held returns a list that is at most a second old.
func (h *Handler) held(ctx context.Context) (state, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.listed) < shared {
		return h.list, nil
	}
	var list state
	var err error
	if list.List, err = h.cfg.Source.Held(ctx); err != nil {
		return list, err
	}
	if list.lines, list.linesLeftOut, err = h.cfg.Source.HeldLines(ctx); err != nil {
		return list, err
	}
	queues, err := h.cfg.Source.Queues(ctx)
	if err != nil {
		return list, err
	}
	for _, q := range queues {
		if q.Paused {
			list.paused = append(list.paused, q)
		}
	}
	h.list, h.listed = list, time.Now()
	return list, nil
}
