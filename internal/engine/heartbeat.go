package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
)

// A beaten is what came of a heartbeat.
type beaten struct {
	sent time.Time
	came []renewal        // of each attempt
	errs map[string]error // by place
}

// A renewal is what came of an attempt in a heartbeat.
type renewal int

const (
	renewalUnknown renewal = iota
	renewalKept
	renewalLost
)

// mostBeat is how many attempts one call renews.
const mostBeat = 500

// sendBeat renews the locks and leases of the attempts. That of an attempt which has ended is renewed for as long
// as a lock lasts, while Redis does not take its outcome; after that others may have its resource.
func (l *loop) sendBeat(ctx context.Context, now time.Time) {
	if l.beat != nil || now.Before(l.beatNext) {
		return
	}
	l.beatNext = now.Add(l.cfg.RenewEvery)
	var beat []*attempt
	for _, a := range l.attempts {
		if !a.lost && (a.ended.IsZero() || now.Sub(a.ended) <= l.cfg.TTL) {
			beat = append(beat, a)
		}
	}
	if len(beat) == 0 {
		return
	}
	// Those of one place are together, and the order is the same each time.
	slices.SortFunc(beat, func(x, y *attempt) int {
		return cmp.Or(strings.Compare(x.Queue, y.Queue), strings.Compare(x.Attempt, y.Attempt))
	})
	names := make([]taskredis.Name, len(beat))
	for i, a := range beat {
		names[i] = a.Name
	}
	l.beat = beat
	go func() {
		limited, cancel := context.WithTimeout(ctx, l.cfg.RenewEvery)
		defer cancel()
		came, errs := l.renew(limited, names)
		select {
		case l.beats <- beaten{now, came, errs}:
		case <-ctx.Done():
		}
	}()
}

// renew renews attempts, those of one place by as few calls as there may be, until one fails; and all places at once, as one that
// does not answer must cost the others no lock.
func (l *loop) renew(ctx context.Context, names []taskredis.Name) ([]renewal, map[string]error) {
	came, errs := make([]renewal, len(names)), make(map[string]error)
	var mu sync.Mutex // guards errs
	var places sync.WaitGroup
	for from, to := 0, 0; from < len(names); from = to {
		place := l.placeOf(names[from].Queue)
		for to < len(names) && l.placeOf(names[to].Queue) == place {
			to++
		}
		names, came := names[from:to], came[from:to]
		places.Go(func() {
			for len(names) > 0 {
				n := min(len(names), mostBeat)
				some, err := l.calls.Renew(ctx, place, names[:n])
				if err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs[place] = err
					return
				}
				for i, is := range some {
					came[i] = renewalLost
					if is {
						came[i] = renewalKept
					}
				}
				names, came = names[n:], came[n:]
			}
		})
	}
	places.Wait()
	return came, errs
}

// beaten takes the answer of a heartbeat.
func (l *loop) beaten(ctx context.Context, b beaten) {
	attempts := l.beat
	l.beat = nil
	for place, err := range b.errs {
		l.places[place].complain(ctx, "heartbeat", err)
		l.beatNext = time.Now().Add(l.cfg.RenewEvery / 4)
	}
	l.lapsed = l.lapsed && len(b.errs) > 0
	for i, a := range attempts {
		switch {
		case l.attempts[a.Attempt] != a || !a.ended.IsZero() || b.came[i] == renewalUnknown:
		case b.came[i] == renewalKept:
			if a.Lock != "" {
				a.trusted = l.trust(b.sent)
			}
		default:
			if a.lock() == "" { // else the handler tells of its lock, and who has taken it
				l.logger.WarnContext(ctx, "a running task is not this server's any more", "queue", a.Queue, "task_id", a.ID)
			}
			l.lose(a)
		}
	}
}
