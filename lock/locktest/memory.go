package locktest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// A Memory keeps locks in memory, with lines, calls and fencing tokens as they
// are on Redis. It is a [lock.Store] and a [store.Listener]. What it gives its
// holders expires by the clock of package time. The zero value is not usable.
type Memory struct {
	mu    sync.Mutex
	locks map[string]*record
	ears  map[string]*ear
}

// An ear is one call of Listen. Calls that it is too slow for are lost.
type ear struct{ calls chan string }

// A record is all that is kept of one key. What has passed its time is as good
// as not there.
type record struct {
	value    string // a token, or a reservation
	valueEnd time.Time
	waiter   string // for whom value is a reservation; "" when it is none
	since    time.Time
	fence    int64
	fenceEnd time.Time
	reserved bool // it has been reserved since it was last granted
	line     []place
	lineEnd  time.Time
}

type place struct {
	waiter string
	ticket int64
}

// NewMemory returns an empty Memory. All who use it share its locks.
func NewMemory() *Memory {
	return &Memory{locks: make(map[string]*record), ears: make(map[string]*ear)}
}

// Put stores the value of a lock as another program would; "" deletes it.
func (m *Memory) Put(key, value string, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(key)
	r.value, r.valueEnd, r.waiter = value, time.Now().Add(ttl), ""
}

// Value returns the value of a lock, "" when there is none.
func (m *Memory) Value(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record(key).value
}

// Waiters returns who is in line, the first in front.
func (m *Memory) Waiters(key string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var waiters []string
	for _, p := range m.record(key).line {
		waiters = append(waiters, p.waiter)
	}
	return waiters
}

// record returns what is kept of key now. m.mu is held.
func (m *Memory) record(key string) *record {
	r := m.locks[key]
	if r == nil {
		r = &record{}
		m.locks[key] = r
	}
	now := time.Now()
	if !now.Before(r.valueEnd) {
		r.value, r.waiter = "", ""
	}
	if !now.Before(r.fenceEnd) {
		r.fence, r.reserved = 0, false
	}
	if !now.Before(r.lineEnd) {
		r.line = nil
	}
	return r
}

// Acquire implements [lock.Store].
func (m *Memory) Acquire(_ context.Context, c store.Claim) (store.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, now := m.record(c.Key), time.Now()
	take := func(handOff time.Duration) (store.Answer, error) {
		r.leave(c.Waiter)
		r.value, r.valueEnd, r.waiter = c.Token, now.Add(c.TTL), ""
		r.fence, r.fenceEnd, r.reserved = max(r.fence+1, now.UnixMicro()), now.Add(c.Keep), false
		return store.Answer{Taken: true, Fence: r.fence, HandOff: handOff}, nil
	}
	var next *store.Turn
	switch {
	case r.value == c.Token && r.fence != 0:
		r.valueEnd = now.Add(c.TTL)
		return store.Answer{Taken: true, Fence: r.fence, HandOff: -1}, nil
	case r.value == c.Token:
		return take(-1)
	case r.value == "":
		if c.Waiter == "" || r.reserved {
			return take(-1)
		}
		turn, first := m.reserve(r, c.Waiter, c.Line)
		if first == "" || first == c.Waiter {
			return take(-1)
		}
		next = turn
	case r.waiter != "" && r.waiter == c.Waiter:
		return take(now.Sub(r.since))
	case r.madeBy(c.Line.Nonce):
		next = r.turn()
	}
	a := store.Answer{Holder: r.value, Reserved: r.waiter != "", Left: r.valueEnd.Sub(now), Next: next}
	if r.fence > 0 {
		a.Since = time.UnixMicro(r.fence)
	}
	if c.Waiter != "" {
		p := r.join(c, now)
		a.Place = slices.Index(r.line, p) + 1
		a.Ticket, a.Waited = p.ticket, time.Duration(now.UnixMicro()-p.ticket)*time.Microsecond
	}
	return a, nil
}

// Renew implements [lock.Store].
func (m *Memory) Renew(_ context.Context, key, token string, ttl, keep time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(key)
	if r.value != token {
		return lock.ErrLost
	}
	r.valueEnd, r.fenceEnd = time.Now().Add(ttl), time.Now().Add(keep)
	return nil
}

// Release implements [lock.Store].
func (m *Memory) Release(_ context.Context, key, token string, line store.Line) (*store.Turn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(key)
	switch {
	case r.value == token:
		return m.passOn(r, line), nil
	case r.madeBy(line.Nonce):
		return r.turn(), nil
	case (r.value == "" || r.waiter != "") && line.Fence > 0 && r.fence == line.Fence:
		return nil, nil //nolint:nilnil // released by this call before: nobody has had it since
	default:
		return nil, lock.ErrLost
	}
}

// Leave implements [lock.Store].
func (m *Memory) Leave(_ context.Context, key, waiter, value string, line store.Line) (*store.Turn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(key)
	if r.madeBy(line.Nonce) {
		return r.turn(), nil
	}
	if value != "" && r.value != value {
		return nil, nil //nolint:nilnil // it no longer stands: no turn and no error
	}
	r.leave(waiter)
	if r.waiter == "" || r.waiter != waiter {
		return nil, nil //nolint:nilnil // the lock was not kept for it: nothing to pass on
	}
	return m.passOn(r, line), nil
}

// Called implements [lock.Store].
func (m *Memory) Called(_ context.Context, key string, turn store.Turn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.record(key); r.value == turn.Value {
		r.leave(turn.Waiter)
	}
	return nil
}

// Listen implements [store.Listener].
func (m *Memory) Listen(ctx context.Context, id string, heard func(), call func(waiter string)) error {
	e := &ear{calls: make(chan string, 1000)}
	m.mu.Lock()
	m.ears[id] = e
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.ears[id] == e {
			delete(m.ears, id)
		}
	}()
	heard()
	for {
		select {
		case waiter := <-e.calls:
			call(waiter)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// passOn keeps the lock for the first who can come, or frees it.
func (m *Memory) passOn(r *record, line store.Line) *store.Turn {
	turn, first := m.reserve(r, "", line)
	if first == "" {
		r.value, r.waiter = "", ""
	}
	return turn
}

// reserve keeps the lock for the first in line who can come, and returns who that
// is, "" for nobody, and its turn if the client has to call it. It goes no
// further than to me.
func (m *Memory) reserve(r *record, me string, line store.Line) (turn *store.Turn, first string) {
	for _, p := range slices.Clone(r.line) {
		if p.waiter == me {
			return nil, me
		}
		id, listens := store.ListenerOf(p.waiter)
		e := m.ears[id]
		switch {
		case listens:
			r.leave(p.waiter)
			if e == nil {
				continue // it is gone
			}
			select {
			case e.calls <- p.waiter:
			default:
			}
		case !line.ByHand:
			continue
		}
		now := time.Now()
		r.value, r.valueEnd, r.waiter, r.since = line.Nonce+":"+p.waiter, now.Add(line.Grace), p.waiter, now
		r.reserved, r.fenceEnd = true, now.Add(line.Keep)
		return r.turn(), p.waiter
	}
	return nil, ""
}

// turn is what a client is told of a reservation: nothing when it has to call nobody.
func (r *record) turn() *store.Turn {
	if _, listens := store.ListenerOf(r.waiter); listens {
		return nil
	}
	turn := &store.Turn{Waiter: r.waiter, Value: r.value}
	if i := r.index(r.waiter); i >= 0 {
		turn.Ticket = r.line[i].ticket
	}
	return turn
}

// madeBy reports whether the lock was reserved by the call that nonce belongs to.
func (r *record) madeBy(nonce string) bool {
	return r.waiter != "" && strings.HasPrefix(r.value, nonce+":")
}

func (r *record) index(waiter string) int {
	return slices.IndexFunc(r.line, func(p place) bool { return p.waiter == waiter })
}

func (r *record) leave(waiter string) {
	if i := r.index(waiter); i >= 0 {
		r.line = slices.Delete(r.line, i, i+1)
	}
}

// join puts the waiter of c in line, if it is not there, and returns its place.
func (r *record) join(c store.Claim, now time.Time) place {
	r.lineEnd = now.Add(c.Line.Keep)
	if i := r.index(c.Waiter); i >= 0 {
		return r.line[i]
	}
	p := place{waiter: c.Waiter, ticket: now.Add(-c.Waited).UnixMicro()}
	if c.Came > 0 {
		p.ticket = min(c.Came, now.UnixMicro())
	} else if n := len(r.line); n > 0 && c.Waited == 0 {
		p.ticket = max(p.ticket, r.line[n-1].ticket+1)
	}
	r.line = append(r.line, p)
	slices.SortFunc(r.line, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))
	})
	return p
}
