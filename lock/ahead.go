package lock

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"
)

//go:embed ahead.lua
var aheadSource string

// A Grant is a lock that a script has taken by take_ahead, see [Locker.Ahead].
type Grant struct {
	Resource string
	Token    string
	Fence    int64
	HandOff  time.Duration // since it was reserved; negative if it was not
	Start    time.Time     // before the script was sent
}

// Ahead returns a text in Lua for scripts that run where the lock's keys are, which
// excludes those on a Cluster. It defines the local functions
//
//	take_ahead(with, resource, id, holder, waiter)
//	held_ahead(value)
//	join_ahead(with, resource, waiter, value)
//
// The first takes a lock as [Locker.Acquire] would, if that can be had at once, and returns
// what makes a [Grant]. The others name its holder, and have the waiter join its line, for
// which they return what [Locker.Refusal] reads. with is a table of argv.
func (l *Locker) Ahead() (source string, argv []any) {
	return takeSource + joinSource + aheadSource,
		[]any{l.cfg.Prefix, ms(l.cfg.TTL), ms(l.cfg.grantKeep()), ms(l.cfg.lineKeep())}
}

// ReleaseAhead returns a text in Lua that defines the local function
//
//	release_ahead(KEYS, ARGV)
//
// which does what [Lease.HandOff] does on Redis. summon is that of [RedisCalling]. See
// [Lease.HandOver].
func ReleaseAhead(summon string) string {
	return "local function release_ahead(KEYS, ARGV)\n" + withParts(releaseSource, summon) + "\nend\n"
}

// Refusal reads what join_ahead has returned of the lock of a resource, see [Locker.Ahead].
func (l *Locker) Refusal(resource string, fields []any) (*BusyError, error) {
	r := newReply(fields, nil)
	a := r.refusal()
	if r.err != nil {
		return nil, fmt.Errorf("lock: refusal of %s: %w", resource, r.err)
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
