package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
)

// A beaten is what came of a heartbeat.
type beaten struct {
	sent time.Time
	kept []bool
	err  error
}

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
		kept, err := l.renew(limited, names)
		select {
		case l.beats <- beaten{now, kept, err}:
		case <-ctx.Done():
		}
	}()
}

// renew renews attempts, those of one place by as few calls as there may be. After an error it says what came of those before.
func (l *loop) renew(ctx context.Context, names []taskredis.Name) (kept []bool, err error) {
	for len(names) > 0 && err == nil {
		place, n := l.placeOf(names[0].Queue), 1
		for n < len(names) && n < mostBeat && l.placeOf(names[n].Queue) == place {
			n++
		}
		var some []bool
		some, err = l.calls.Renew(ctx, place, names[:n])
		kept = append(kept, some...)
		names = names[n:]
	}
	return kept, err
}

// beaten takes the answer of a heartbeat.
func (l *loop) beaten(ctx context.Context, b beaten) {
	attempts := l.beat
	l.beat = nil
	if b.err != nil {
		l.places[l.placeOf(attempts[0].Queue)].complain(ctx, "heartbeat", b.err)
		l.beatNext = time.Now().Add(l.cfg.RenewEvery / 4)
	} else {
		l.lapsed = false
	}
	for i, a := range attempts[:len(b.kept)] {
		switch {
		case l.attempts[a.Attempt] != a || !a.ended.IsZero():
		case b.kept[i]:
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
