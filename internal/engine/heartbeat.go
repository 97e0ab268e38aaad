package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
)

// mostBeat is how many attempts one call renews.
const mostBeat = 500

// sendBeat renews the locks and leases of the attempts, those of each scope by itself and at its own times: one that does not answer
// must cost the others neither locks nor calls. That of an attempt which has ended is renewed for as long as a lock lasts, while Redis
// does not take its outcome; after that others may have its resource.
func (l *loop) sendBeat(ctx context.Context, now time.Time) {
	beats := make(map[*scope][]*attempt)
	for _, sc := range l.scopes {
		if sc.beat == nil && !now.Before(sc.beatNext) { // of one that is under way the answer comes first
			beats[sc], sc.beatNext = nil, now.Add(l.cfg.RenewEvery)
		}
	}
	if len(beats) == 0 {
		return
	}
	for _, a := range l.attempts {
		sc := l.scopes[l.scopeOf(a.Queue)]
		if beat, due := beats[sc]; due && !a.lost.Load() && (a.ended.IsZero() || now.Sub(a.ended) <= l.cfg.TTL) {
			beats[sc] = append(beat, a)
		}
	}
	for sc, beat := range beats {
		if len(beat) == 0 {
			continue
		}
		slices.SortFunc(beat, func(x, y *attempt) int { return strings.Compare(x.Attempt, y.Attempt) }) // the same order each time
		names := make([]taskredis.Name, len(beat))
		for i, a := range beat {
			names[i] = a.Name
		}
		sc.beat = beat
		go func() {
			limited, cancel := context.WithTimeout(ctx, l.cfg.RenewEvery)
			defer cancel()
			kept, err := l.renew(limited, sc.name, names)
			_ = l.do(ctx, func() { l.beaten(ctx, sc, now, kept, err) })
		}()
	}
}

// renew renews attempts of a scope by as few calls as there may be. After an error it says what came of those before.
func (l *loop) renew(ctx context.Context, scope string, names []taskredis.Name) (kept []bool, err error) {
	for some := range slices.Chunk(names, mostBeat) {
		is, err := l.calls.Renew(ctx, scope, some)
		if err != nil {
			return kept, err
		}
		kept = append(kept, is...)
	}
	return kept, nil
}

// beaten takes the answer of a heartbeat that was sent at a time: which attempts are kept, of those before an error.
func (l *loop) beaten(ctx context.Context, sc *scope, sent time.Time, kept []bool, err error) {
	attempts := sc.beat
	sc.beat = nil
	if err != nil {
		sc.complain(ctx, "heartbeat", err)
		if soon := time.Now().Add(l.cfg.RenewEvery / 4); soon.Before(sc.beatNext) {
			sc.beatNext = soon
		}
	} else {
		l.lapsed = false
	}
	for i, a := range attempts[:len(kept)] {
		switch {
		case l.attempts[a.Attempt] != a || !a.ended.IsZero() || a.lost.Load():
		case kept[i]:
			if a.Lock != "" {
				l.trust(a, sent)
			}
		default:
			if a.lock() == "" { // else the handler tells of its lock, and who has taken it
				l.logger.WarnContext(ctx, "a running task is not this server's any more", "queue", a.Queue, "task_id", a.ID)
			}
			l.lose(a)
		}
	}
}
