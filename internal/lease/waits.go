package lease

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/store"
)

const (
	// noteAfter is how long a wait lasts before a holder notes it. A shorter one costs no call.
	noteAfter = time.Second
	// noteEvery is how often a note is written again, and noteTTL how long it lasts without that.
	noteEvery = 5 * time.Second
	noteTTL   = 15 * time.Second
	// mostNoted bounds the waits of one note. Those that began first are noted.
	mostNoted = 10
)

// A Waiting is a wait for a lock by work that runs under leases of other locks.
type Waiting struct {
	client   *Client
	key      string
	deadline time.Time // zero for none
	holders  []*holding

	mu     sync.Mutex
	waiter string
}

// Waiting says that the caller waits for the lock of resource from now on, until [Waiting.End]. If the
// wait lasts, each lease under which ctx runs notes that in its store, so that an operator sees why its
// holder does not go on. A note is never an error, and nobody waits for one.
func (c *Client) Waiting(ctx context.Context, resource string) *Waiting {
	w := &Waiting{client: c, key: c.Key(resource)}
	w.deadline, _ = ctx.Deadline()
	for f := frameOf(ctx); f != nil; f = f.outer {
		h := f.holding
		if h == nil || slices.Contains(w.holders, h) {
			continue
		}
		if _, ok := h.client.store.(store.Noter); ok {
			w.holders = append(w.holders, h)
		}
	}
	for _, h := range w.holders {
		h.waits.begin(h, w)
	}
	return w
}

// Queued says under which name the caller asks the store, which puts it into the wait queue.
func (w *Waiting) Queued(waiter string) {
	if _, ok := w.client.store.(store.Noter); !ok {
		return // nobody finds that wait queue
	}
	w.mu.Lock()
	w.waiter = waiter
	w.mu.Unlock()
	for _, h := range w.holders {
		h.waits.mu.Lock()
		h.waits.changed = true
		h.waits.mu.Unlock()
	}
}

// End ends the wait.
func (w *Waiting) End() {
	for _, h := range w.holders {
		h.waits.end(w)
	}
}

// note returns what h, which waits so, notes of the wait.
func (w *Waiting) note(h *holding) store.Wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := store.Wait{Key: w.key, Waiter: w.waiter, Until: w.deadline}
	if end := h.since.Add(h.maxHold); h.maxHold > 0 && (n.Until.IsZero() || end.Before(n.Until)) {
		n.Until = end
	}
	// A waiter's name proves in which Redis it waits.
	n.Elsewhere = w.waiter == "" && w.client.store != h.client.store
	return n
}

// waits are those of the work under one token.
type waits struct {
	mu      sync.Mutex
	all     []*Waiting  // the one that began first comes first
	timer   *time.Timer // notes; nil before the first wait
	changed bool        // since the last note
	noted   time.Time   // when the last note was sent; zero if it said that nobody waits
	sending bool        // a note is under way, and the next one follows it
}

func (s *waits) begin(h *holding, w *Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.changed = append(s.all, w), true
	switch {
	case s.timer == nil:
		s.timer = time.AfterFunc(noteAfter, h.noteWaits)
	case len(s.all) == 1:
		s.timer.Reset(noteAfter)
	}
}

func (s *waits) end(w *Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.changed = slices.DeleteFunc(s.all, func(other *Waiting) bool { return other == w }), true
	switch {
	case len(s.all) > 0:
	case s.noted.IsZero():
		s.timer.Stop()
	default:
		s.timer.Reset(0)
	}
}

// noteWaits writes for what the work under h waits, and has the timer do so again while it waits. An
// error is of no use to anybody: the next note mends it, and this one expires.
func (h *holding) noteWaits() {
	h.mu.Lock()
	valid := h.valid()
	h.mu.Unlock()
	if !valid || !h.client.Begin() {
		return // without the lease a note says nothing
	}
	defer h.client.End()
	s := &h.waits
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sending {
		return
	}
	waiting, noted := len(s.all) > 0, !s.noted.IsZero()
	if waiting && (s.changed || time.Since(s.noted) >= noteEvery) || !waiting && noted {
		all := slices.Clone(s.all[:min(len(s.all), mostNoted)])
		s.sending, s.changed, s.noted = true, false, time.Now()
		if !waiting {
			s.noted = time.Time{}
		}
		s.mu.Unlock()
		h.sendNote(all)
		s.mu.Lock()
		s.sending = false
	}
	switch {
	case len(s.all) > 0:
		s.timer.Reset(noteAfter)
	case !s.noted.IsZero():
		s.timer.Reset(0) // the last wait ended meanwhile
	}
}

func (h *holding) sendNote(all []*Waiting) {
	notes := make([]store.Wait, len(all))
	for i, w := range all {
		notes[i] = w.note(h)
	}
	ctx, cancel := context.WithTimeout(h.client.Closing(), CleanupTimeout)
	defer cancel()
	if noter, ok := h.client.store.(store.Noter); ok {
		_ = noter.Note(ctx, h.key, h.token, h.fence, notes, noteTTL)
	}
}
