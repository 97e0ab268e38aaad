package lockpage

import (
	"context"
	"errors"
	"fmt"
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

// A resourcePage is a lock, and who waits for it.
type resourcePage struct {
	Lock     inspect.Lock
	Waiters  []inspect.Waiter
	From     int // the rank of the first waiter shown
	Last     int // that of the last one
	Previous string
	Next     string

	Revocable bool // a holder has the lock, and the lock can be taken from it
	ReadOnly  bool
	Reason    string // as typed
	Mistake   string // why the lock was not released
}

func (h *Handler) showResource(w http.ResponseWriter, r *http.Request) {
	h.writeResource(w, r, http.StatusOK, resourcePage{})
}

// writeResource writes the page of the resource that the request names. p has what the person typed.
func (h *Handler) writeResource(w http.ResponseWriter, r *http.Request, status int, p resourcePage) {
	name := r.FormValue("name")
	if name == "" {
		h.fail(w, r, http.StatusBadRequest, "Which resource?", "The address of this page needs a name: "+RootPath+"/resource?name=...")
		return
	}
	p.From = 1
	if from, err := strconv.Atoi(r.FormValue("from")); err == nil && from > 1 {
		p.From = min(from, inspect.MostListed)
	}
	var err error
	if p.Lock, p.Waiters, err = h.cfg.Source.Show(r.Context(), name, p.From, shown); err != nil {
		h.failAsking(w, r, err)
		return
	}
	p.Last = p.From + len(p.Waiters) - 1
	if p.From > 1 {
		p.Previous = pageURL(name, max(1, p.From-shown))
	}
	if p.Last < min(p.Lock.Waiting, inspect.MostListed) && len(p.Waiters) > 0 {
		p.Next = pageURL(name, p.Last+1)
	}
	p.Revocable = h.cfg.Revoke != nil && !p.Lock.Elsewhere && len(p.Lock.Permits) < 2 && (p.Lock.State == inspect.Held || p.Lock.State == inspect.Foreign)
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
	again := func(status int, mistake string) {
		patient(func(w http.ResponseWriter, r *http.Request) {
			h.writeResource(w, r, status, resourcePage{Reason: reason, Mistake: mistake})
		})(w, r)
	}
	mistake := ""
	switch {
	case h.cfg.Revoke == nil:
		h.fail(w, r, http.StatusNotFound, "This worker cannot release locks.", "Use lockctl.")
		return
	case h.cfg.ReadOnly:
		h.fail(w, r, http.StatusForbidden, "This worker releases no locks.", "Its setting http.read_only is on. Use another worker, or lockctl.")
		return
	case name == "":
		h.fail(w, r, http.StatusBadRequest, "Which resource?", "The form has no name of a resource.")
		return
	case reason == "":
		mistake = "Give a reason for those who look at the lock later."
	case len(reason) > longestReason || !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl):
		mistake = fmt.Sprintf("Give the reason in one line of at most %d bytes.", longestReason)
	case r.PostFormValue("sure") == "":
		mistake = "Confirm that you want to take the lock from its holder."
	}
	if mistake != "" {
		again(http.StatusUnprocessableEntity, mistake)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	lock, _, err := h.cfg.Source.Show(ctx, name, 1, 1)
	if err == nil && seen(lock) != r.PostFormValue("seen") {
		again(http.StatusConflict, "Nothing has changed: the lock has another holder by now, or none.")
		return
	}
	fence := lock.Fence
	if lock.State == inspect.Foreign {
		fence = 0 // lock.Fence is that of an earlier lease
	}
	if err == nil {
		err = h.cfg.Revoke(ctx, name, fence, h.cfg.By(r), reason)
	}
	if err != nil {
		again(http.StatusServiceUnavailable, "The lock may not have been taken from its holder: "+err.Error())
		return
	}
	http.Redirect(w, r, resourceURL(name), http.StatusSeeOther) // its page shows the record
}

// seen names one lease of a lock, so that nobody takes the lock from a holder that came later. It is printable ASCII, which browsers
// send as it is.
func seen(l inspect.Lock) string {
	return string(l.State) + " " + strconv.FormatInt(l.Fence, 10) + " " + strconv.QuoteToASCII(l.Holder)
}

// Seen returns what seen says of the lock on the page.
func (p resourcePage) Seen() string { return seen(p.Lock) }

func resourceURL(name string) string {
	return RootPath + "/resource?" + url.Values{"name": {name}}.Encode()
}

func (h *Handler) showTask(w http.ResponseWriter, r *http.Request) {
	queue, id := r.FormValue("queue"), strings.TrimSpace(r.FormValue("id"))
	if id == "" {
		h.fail(w, r, http.StatusBadRequest, "Which task?", "The address of this page needs the id of a task: "+RootPath+"/task?id=...")
		return
	}
	why, err := h.cfg.Source.Why(r.Context(), queue, id)
	switch {
	case errors.Is(err, inspect.ErrUnknownTask):
		where := "No queue has the task " + id + "."
		if queue != "" {
			where = "The queue " + queue + " has no task " + id + "."
		}
		h.fail(w, r, http.StatusNotFound, where, "The task was never enqueued, has succeeded and was not retained, or was deleted.")
		return
	case err != nil:
		h.failAsking(w, r, err)
		return
	}
	h.write(w, r, http.StatusOK, "task", page{Title: "Task " + id, Tab: "list", Refresh: true, Content: why})
}

func taskURL(t inspect.Task) string {
	v := url.Values{"id": {t.ID}}
	if t.Queue != "" {
		v.Set("queue", t.Queue)
	}
	return RootPath + "/task?" + v.Encode()
}
