package locktest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

// A Memory keeps locks in memory, with wait queues and fencing tokens as on Redis. A Memory is a
// [lock.Store] and a [store.Listener]. Its locks expire by the clock of package time. The zero
// value is not usable.
type Memory struct {
	mu        sync.Mutex
	locks     map[string]*record
	listeners map[string]*listener
}

// A listener is one call of Listen. It loses the waiters that it is too slow for.
type listener struct{ woken chan string }

// A record is all that is kept of one key. A value that has expired counts as none.
type record struct {
	key      string
	value    string // a token, or a reservation
	valueEnd time.Time
	waiter   string // for whom value is a reservation; "" when it is none
	fence    int64
	fenceEnd time.Time
	reserved bool // it has been reserved since it was last granted
	queue    []queued
	queueEnd time.Time
}

// A queued waiter is one in the wait queue.
type queued struct {
	waiter string
	ticket int64
}

// NewMemory returns an empty Memory. All who use the Memory share its locks.
func NewMemory() *Memory {
	return &Memory{locks: make(map[string]*record), listeners: make(map[string]*listener)}
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

// Waiters returns who is in the wait queue, the first in front.
func (m *Memory) Waiters(key string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var waiters []string
	for _, p := range m.record(key).queue {
		waiters = append(waiters, p.waiter)
	}
	return waiters
}

// record returns what is kept of key now. m.mu is held.
func (m *Memory) record(key string) *record {
	r := m.locks[key]
	if r == nil {
		r = &record{key: key}
		m.locks[key] = r
	}
	now := time.Now()
	if !now.Before(r.valueEnd) {
		r.value, r.waiter = "", ""
	}
	if !now.Before(r.fenceEnd) {
		r.fence, r.reserved = 0, false
	}
	if !now.Before(r.queueEnd) {
		r.queue = nil
	}
	return r
}

// Acquire implements [lock.Store].
func (m *Memory) Acquire(_ context.Context, c store.Request) (store.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, now := m.record(c.Key), time.Now()
	take := func() (store.Result, error) {
		r.leave(c.Waiter)
		r.value, r.valueEnd, r.waiter = c.Token, now.Add(c.TTL), ""
		r.fence, r.fenceEnd, r.reserved = max(r.fence+1, now.UnixMicro()), now.Add(c.FenceTTL), false
		return store.Result{Taken: true, Fence: r.fence}, nil
	}
	switch {
	case r.value == c.Token && r.fence != 0:
		r.valueEnd = now.Add(c.TTL)
		return store.Result{Taken: true, Fence: r.fence}, nil
	case r.value == c.Token:
		return take()
	case r.value == "":
		if c.Waiter == "" || r.reserved {
			return take()
		}
		r.join(c, now) // it may have come before the others
		if m.reserve(r, c.Waiter, c.Handoff) == c.Waiter {
			return take()
		}
	case r.waiter != "" && r.waiter == c.Waiter:
		return take()
	}
	a := store.Result{Holder: r.value, Reserved: r.waiter != "", Left: r.valueEnd.Sub(now)}
	if r.fence > 0 {
		a.Since = time.UnixMicro(r.fence)
	}
	if c.Waiter != "" {
		p := r.join(c, now)
		if end := r.valueEnd.Add(c.Handoff.Timeout); end.After(r.queueEnd) {
			r.queueEnd = end // it may sleep until then
		}
		a.Position = slices.Index(r.queue, p) + 1
	}
	return a, nil
}

// Renew implements [lock.Store].
func (m *Memory) Renew(_ context.Context, key, token string, ttl, fenceTTL time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(key)
	if r.value != token {
		return lock.ErrLost
	}
	r.valueEnd, r.fenceEnd = time.Now().Add(ttl), time.Now().Add(fenceTTL)
	return nil
}

// Release implements [lock.Store].
func (m *Memory) Release(_ context.Context, key, token string, how store.Release) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(key)
	switch {
	case r.value == token:
		m.handOff(r, how.Handoff)
		return nil
	case (r.value == "" || r.waiter != "") && how.Fence > 0 && r.fence == how.Fence:
		return nil // released by this call before: nobody has had it since
	default:
		return lock.ErrLost
	}
}

// Leave implements [lock.Store].
func (m *Memory) Leave(_ context.Context, key, waiter string, how store.Leave) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(key)
	r.leave(waiter)
	if r.waiter != "" && r.waiter == waiter {
		m.handOff(r, how.Handoff)
	}
	return nil
}

// Listen implements [store.Listener].
func (m *Memory) Listen(ctx context.Context, id string, listening func(), wake func(waiter string)) error {
	l := &listener{woken: make(chan string, 1000)}
	m.mu.Lock()
	m.listeners[id] = l
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.listeners[id] == l {
			delete(m.listeners, id)
		}
	}()
	listening()
	for {
		select {
		case waiter := <-l.woken:
			wake(waiter)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handOff reserves the lock for the first waiter that can come, or frees it.
func (m *Memory) handOff(r *record, how store.Handoff) {
	if m.reserve(r, "", how) == "" {
		r.value, r.waiter = "", ""
	}
}

// reserve reserves the lock for the first in the wait queue that can come. The result is that waiter, "" for nobody. The
// search goes no further than to me.
func (m *Memory) reserve(r *record, me string, how store.Handoff) (first string) {
	for _, p := range slices.Clone(r.queue) {
		if p.waiter == me {
			return me
		}
		r.leave(p.waiter)
		id, _ := store.ListenerOf(p.waiter)
		l := m.listeners[id]
		if l == nil {
			continue // the waiter has gone
		}
		select {
		case l.woken <- p.waiter:
		default:
		}
		now := time.Now()
		r.value, r.valueEnd, r.waiter = how.Nonce+":"+p.waiter, now.Add(how.Timeout), p.waiter
		r.reserved, r.fenceEnd = true, now.Add(how.QueueTTL)
		return p.waiter
	}
	return ""
}

func (r *record) index(waiter string) int {
	return slices.IndexFunc(r.queue, func(p queued) bool { return p.waiter == waiter })
}

func (r *record) leave(waiter string) {
	if i := r.index(waiter); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
	}
}

// join puts the waiter of c in the wait queue, if it is not there, and returns its entry.
func (r *record) join(c store.Request, now time.Time) queued {
	r.queueEnd = now.Add(c.Handoff.QueueTTL)
	if i := r.index(c.Waiter); i >= 0 {
		return r.queue[i]
	}
	p := queued{waiter: c.Waiter, ticket: now.Add(-c.Waited).UnixMicro()}
	if n := len(r.queue); n > 0 && c.Waited == 0 {
		p.ticket = max(p.ticket, r.queue[n-1].ticket+1)
	}
	r.queue = append(r.queue, p)
	slices.SortFunc(r.queue, func(a, b queued) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter, b.waiter))
	})
	return p
}
