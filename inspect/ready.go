package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/taskredis"
)

// served is how soon a server has taken the first task of a lock that is free, if it can. Most take it within
// milliseconds.
const served = 3 * time.Second

// unserved returns for how long a waiting task could have had the lock, 0 if that is not for long.
func (s *sight) unserved() time.Duration {
	if s.ready.IsZero() || s.Now.Sub(s.ready) < served {
		return 0
	}
	return s.Now.Sub(s.ready)
}

// findReady finds out since when those who wait could have their locks. An entry of a ready set is due as soon as that, or
// earlier: it says only that somebody should look at the lock, and nobody does while all slots are in use. So it finds out whether
// something else keeps the lock from the line, as far as Redis knows.
func (f *fleet) findReady(ctx context.Context, targets []target, sights []sight) error {
	var entries []taskredis.Ready
	var of []*sight // of each entry
	for n := range sights {
		s := &sights[n]
		free := s.State == lockredis.LookFree || len(s.Permits) > 0 && s.State != lockredis.LookForeign
		for _, e := range targets[n].entries {
			if free && len(s.Lines) > 0 && e.Due <= s.Now.UnixMicro() {
				entries, of = append(entries, e), append(of, s)
			}
		}
	}
	if len(entries) == 0 {
		return nil
	}
	held, err := taskredis.HeldUntil(ctx, f.rdb, entries)
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	freed, err := taskredis.FreedAt(ctx, f.rdb, entries)
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	for n, e := range entries {
		s, now := of[n], of[n].Now.UnixMicro()
		if freed[n] > now {
			freed[n] = 0 // the clock was set back
		}
		limit := f.limit(s.resource)
		switch {
		case held[n] > now, limit != nil && len(s.Permits) >= limit.Holders:
		case len(s.Permits) > 0 && freed[n] <= s.granted(): // there may be no free permit: how many there are is not known
		default:
			ready := time.UnixMicro(max(e.Due, held[n], freed[n]))
			if s.ready.IsZero() || ready.Before(s.ready) {
				s.ready = ready
			}
		}
	}
	return nil
}

// granted is when somebody got the lock, or a permit of it, last: the time that the highest fence is, in us.
func (s *sight) granted() int64 {
	last := s.Fence
	for _, p := range s.Permits {
		last = max(last, p.Fence)
	}
	return last
}
