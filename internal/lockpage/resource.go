package lockpage

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sidingq/siding/inspect"
)

// longestReason bounds the reason of a revocation, in bytes.
const longestReason = 500

// A resourcePage is a lock and its wait queue.
type resourcePage struct {
	Lock     inspect.Lock
	Waiters  []inspect.Waiter
	From     int // the rank of the first waiter shown
	Last     int // that of the last one
	Previous string
	Next     string

	Revocable bool // a holder is there, and somebody may take the lock from it
	ReadOnly  bool
	Reason    string // that was typed
	Mistake   string // in what was typed
}

func (h *Handler) showResource(w http.ResponseWriter, r *http.Request) {
	h.writeResource(w, r, http.StatusOK, resourcePage{})
}

// writeResource writes the page of the resource that the request names. p has what was typed.
func (h *Handler) writeResource(w http.ResponseWriter, r *http.Request, status int, p resourcePage) {
	h.fleet.looked()
	name := r.FormValue("name")
	if name == "" {
		h.fail(w, r, http.StatusBadRequest, "Which resource?", "The address of this page needs a name: "+RootPath+"/resource?name=...")
		return
	}
	p.From = 1
	if from, err := strconv.Atoi(r.FormValue("from")); err == nil && from > 1 {
		p.From = from
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	var err error
	if p.Lock, p.Waiters, err = h.cfg.Source.Show(ctx, name, p.From, shown); err != nil {
		h.failAsking(w, r, err)
		return
	}
	p.Last = p.From + len(p.Waiters) - 1
	if p.From > 1 {
		p.Previous = pageURL(name, max(1, p.From-shown))
	}
	if p.Last < p.Lock.Waiting && len(p.Waiters) > 0 {
		p.Next = pageURL(name, p.Last+1)
	}
	p.Revocable = h.cfg.Revoke != nil && !p.Lock.Elsewhere && (p.Lock.State == inspect.Held || p.Lock.State == inspect.Foreign)
	p.ReadOnly = h.cfg.ReadOnly
	all := page{Title: name, Tab: "list", Refresh: !p.Revocable || p.ReadOnly, Content: p}
	if p.Mistake != "" {
		all.Notice = &notice{What: p.Mistake}
	}
	h.write(w, r, status, "resource", all)
}

func pageURL(resource string, from int) string {
	return resourceURL(resource) + "&from=" + strconv.Itoa(from)
}

// revoke takes a lock from its holder. The form says which holder the person has seen.
func (h *Handler) revoke(w http.ResponseWriter, r *http.Request) {
	name, reason := r.PostFormValue("name"), strings.TrimSpace(r.PostFormValue("reason"))
	mistake := ""
	switch {
	case h.cfg.Revoke == nil:
		h.fail(w, r, http.StatusNotFound, "This worker cannot take locks away.", "Use lockctl.")
		return
	case h.cfg.ReadOnly:
		h.fail(w, r, http.StatusForbidden, "These pages only show.", "This worker runs with http.read_only. Use another worker, or lockctl.")
		return
	case name == "":
		h.fail(w, r, http.StatusBadRequest, "Which resource?", "The form has no name of a resource.")
		return
	case reason == "":
		mistake = "Say why you take the lock away: whoever looks later needs it."
	case len(reason) > longestReason || !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl):
		mistake = "Say it in one line of 500 letters at most."
	case r.PostFormValue("sure") == "":
		mistake = "Confirm that you want to take the lock from its holder."
	}
	if mistake != "" {
		h.writeResource(w, r, http.StatusUnprocessableEntity, resourcePage{Reason: reason, Mistake: mistake})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	lock, _, err := h.cfg.Source.Show(ctx, name, 1, 1)
	if err == nil && seen(lock) != r.PostFormValue("seen") {
		h.writeResource(w, r, http.StatusConflict, resourcePage{Reason: reason, Mistake: "The lock has another holder by now, or none."})
		return
	}
	fence := lock.Fence
	if lock.State == inspect.Foreign {
		fence = 0 // that is the last lease's
	}
	if err == nil {
		err = h.cfg.Revoke(ctx, name, fence, h.cfg.By(r), reason)
	}
	if err != nil {
		h.writeResource(w, r, http.StatusServiceUnavailable, resourcePage{Reason: reason, Mistake: "The lock was not taken away: " + err.Error()})
		return
	}
	http.Redirect(w, r, resourceURL(name), http.StatusSeeOther) // whose page has the record
}

// seen names one lease of a lock, so that nobody takes the lock from a holder that came later.
func seen(l inspect.Lock) string {
	return string(l.State) + " " + strconv.FormatInt(l.Fence, 10) + " " + l.Holder
}

// Seen is seen of the page's lock.
func (p resourcePage) Seen() string { return seen(p.Lock) }

func resourceURL(name string) string {
	return RootPath + "/resource?" + url.Values{"name": {name}}.Encode()
}

// A taskPage explains a task.
type taskPage struct{ inspect.Explanation }

func (h *Handler) showTask(w http.ResponseWriter, r *http.Request) {
	h.fleet.looked()
	queue, id := r.FormValue("queue"), strings.TrimSpace(r.FormValue("id"))
	if id == "" {
		h.fail(w, r, http.StatusBadRequest, "Which task?", "The address of this page needs the id of a task: "+RootPath+"/task?id=...")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	why, err := h.cfg.Source.Why(ctx, queue, id)
	switch {
	case errors.Is(err, inspect.ErrUnknownTask):
		h.fail(w, r, http.StatusNotFound, "No queue has the task "+id+".", "It was never enqueued, has succeeded and was not retained, or was deleted.")
		return
	case err != nil:
		h.failAsking(w, r, err)
		return
	}
	h.write(w, r, http.StatusOK, "task", page{Title: "Task " + id, Tab: "list", Refresh: true, Content: taskPage{why}})
}

func taskURL(t inspect.Task) string {
	v := url.Values{"id": {t.ID}}
	if t.Queue != "" {
		v.Set("queue", t.Queue)
	}
	return RootPath + "/task?" + v.Encode()
}
