package lockpage

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sidingq/siding/inspect"
)

// shown is how many locks or waiters one page shows.
const shown = 200

// An order is a way to sort the list.
type order struct{ Name, Title string }

// orders are all ways to sort the list, by the names that [inspect.Sort] gives them. The first is the default.
var orders = []order{
	{"oldest", "Longest wait"}, {"waiters", "Most waiting"}, {"since", "Held longest"}, {"left", "Least lease left"}, {"resource", "Resource"},
}

// A listPage is the list of locks.
type listPage struct {
	Query  string
	Order  order
	Orders []order

	Locks                   []inspect.Lock // those shown
	Found, All, LeftOut     int
	Held, Reserved, Foreign int
	Unserved                int
	Waiting, Gone           int
	OldestWait              inspect.Duration

	Lines  []inspect.HeldLine // the first of those that are held or stopped
	Stood  int                // how many there are
	Paused []inspect.Queue    // queues that an operator has paused
}

func (h *Handler) showList(w http.ResponseWriter, r *http.Request) {
	list, err := h.held(r.Context())
	if err != nil {
		h.failAsking(w, r, err)
		return
	}
	p := listPage{Query: strings.TrimSpace(r.FormValue("q")), Order: orders[0], Orders: orders, All: len(list.Locks), LeftOut: list.LeftOut}
	if i := slices.IndexFunc(orders, func(o order) bool { return o.Name == r.FormValue("sort") }); i >= 0 {
		p.Order = orders[i]
	}
	for _, l := range list.Locks {
		p.count(l)
	}
	p.Locks = filter(list.Locks, p.Query)
	p.Found = len(p.Locks)
	inspect.Sort(p.Locks, p.Order.Name)
	p.Locks = p.Locks[:min(len(p.Locks), shown)]
	p.Stood, p.Paused = len(list.lines)+list.linesLeftOut, list.paused
	p.Lines = list.lines[:min(len(list.lines), shown)]
	h.write(w, r, http.StatusOK, "list", page{Title: "Locks", Tab: "list", Refresh: true, Content: p})
}

// count adds a lock to the sums.
func (p *listPage) count(l inspect.Lock) {
	switch l.State {
	case inspect.Held, inspect.Revoked:
		p.Held++
	case inspect.Reserved:
		p.Reserved++
	case inspect.Foreign:
		p.Foreign++
	case inspect.Free: // somebody waits for it, and no server has taken the task yet
	}
	if l.Unserved > 0 && l.Waiting > l.Paused {
		p.Unserved++
	}
	if l.Gone {
		p.Gone++
	}
	p.Waiting += l.Waiting
	p.OldestWait = max(p.OldestWait, l.OldestWait)
}

// filter returns a new list of the locks that match each word of the query. A word matches a part of
// the resource, the holder, the state or the task, in upper or lower case.
func filter(locks []inspect.Lock, query string) []inspect.Lock {
	words := strings.Fields(strings.ToLower(query))
	var found []inspect.Lock
	for _, l := range locks {
		text := l.Resource + "\n" + l.Holder + "\n" + string(l.State)
		if l.Task != nil {
			text += "\n" + l.Task.Queue + "\n" + l.Task.ID + "\n" + l.Task.Kind
		}
		for _, p := range l.Permits {
			text += "\n" + p.Holder // which names its task, too
		}
		text = strings.ToLower(text)
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			found = append(found, l)
		}
	}
	return found
}

// SortURL returns the address of the same list in another order.
func (p listPage) SortURL(name string) string {
	v := url.Values{}
	if p.Query != "" {
		v.Set("q", p.Query)
	}
	if name != orders[0].Name {
		v.Set("sort", name)
	}
	if len(v) == 0 {
		return RootPath
	}
	return RootPath + "?" + v.Encode()
}
