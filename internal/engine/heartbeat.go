package engine

import (
	"context"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
)

// A beat is the heartbeat that is under way.
type beat struct {
	attempts []*attempt
}

// A beaten is what came of a heartbeat.
type beaten struct {
	sent time.Time
	kept []bool
	err  error
}

// mostBeat is how many attempts one call renews. If there are more, the next call follows at once.
const mostBeat = 500

// sendBeat renews the locks and leases of the attempts. That of an attempt which has ended is renewed for as long
// as a lock lasts, while Redis does not take its outcome; after that others may have its resource.
func (l *loop) sendBeat(ctx context.Context, now time.Time) {
	if l.beat != nil || now.Before(l.beatNext) {
		return
	}
	l.beatNext = now.Add(l.cfg.RenewEvery)
	b := &beat{}
	var names []taskredis.Name
	for _, a := range l.attempts {
		if a.lost || !a.ended.IsZero() && now.Sub(a.ended) > l.cfg.TTL || now.Sub(a.renewed) < l.cfg.RenewEvery/2 {
			continue
		}
		if len(names) == mostBeat {
			l.beatNext = now
			break
		}
		b.attempts = append(b.attempts, a)
		names = append(names, a.Name)
	}
	if len(names) == 0 {
		return
	}
	l.beat = b
	go func() {
		limited, cancel := context.WithTimeout(ctx, l.cfg.RenewEvery)
		defer cancel()
		kept, err := l.calls.Renew(limited, names)
		select {
		case l.beats <- beaten{now, kept, err}:
		case <-ctx.Done():
		}
	}()
}

// beaten takes the answer of a heartbeat.
func (l *loop) beaten(b beaten) {
	attempts := l.beat.attempts
	l.beat = nil
	if b.err != nil {
		l.senders[l.placeOf(attempts[0].Queue)].complain(b.err)
		l.beatNext = time.Now().Add(l.cfg.RenewEvery / 4)
		return
	}
	for i, a := range attempts {
		a.renewed = b.sent
		switch {
		case l.attempts[a.Attempt] != a || !a.ended.IsZero():
		case b.kept[i]:
			if a.Lock != "" {
				a.trusted = l.trust(b.sent)
			}
		default:
			l.logger.Warn("a running task is not this server's any more", "queue", a.Queue, "id", a.ID)
			l.lose(a)
		}
	}
}
