package lock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/redisstore"
)

// A Grant is a lock that a script has taken by take_ahead, see [redisstore.Ahead].
type Grant struct {
	Resource string
	Token    string
	Fence    int64
	HandOff  time.Duration // since it was reserved; negative if it was not
	Start    time.Time     // before the script was sent
}

// Ahead returns the ARGV of what [redisstore.Ahead] defines, for locks of l.
func (l *Locker) Ahead() []any {
	return redisstore.AheadArgs(l.cfg.Prefix, l.cfg.TTL, l.cfg.grantKeep(), l.cfg.lineKeep())
}

// Refusal reads what join_ahead has returned of the lock of a resource, see [redisstore.Ahead].
func (l *Locker) Refusal(resource string, fields []any) (*BusyError, error) {
	a, err := redisstore.Refusal(fields)
	if err != nil {
		return nil, fmt.Errorf("lock: refusal of %s: %w", resource, err)
	}
	return l.busyOf(resource, a), nil
}

// Adopt returns the lease of a lock that has been taken ahead. Where its deadline has
// passed meanwhile, ctx has ended, or the Locker is closed, the lock is given back, which
// is an error.
func (l *Locker) Adopt(ctx context.Context, g Grant) (*Lease, error) {
	_, holder, _ := strings.Cut(strings.TrimPrefix(g.Token, tokenPrefix), ":")
	t := &tenure{
		Locker: l, resource: g.Resource, key: l.key(g.Resource), token: g.Token, holder: holder,
		fence: g.Fence, handOff: g.HandOff, start: g.Start, since: time.Now(), leases: 1,
	}
	if !l.begin() {
		t.giveBack(ctx)
		return nil, fmt.Errorf("lock: adopt %s: %w", g.Resource, ErrClosed)
	}
	defer l.acquiring.Done()
	end := endOf(ctx)
	if end == nil && !t.trusted() {
		end = errTooLate
	}
	if end != nil {
		t.giveBack(ctx)
		return nil, fmt.Errorf("lock: adopt %s: %w", g.Resource, end)
	}
	l.arrived(t)
	return &Lease{tenure: t}, nil
}
