package redisstore

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// A replyError says that a script has returned something that none of our scripts returns.
type replyError struct{}

func (replyError) Error() string { return "lock: unexpected reply of a script" }

// Passing reports that the error does not pass by itself.
func (replyError) Passing() bool { return false }

var errReply error = replyError{}

// A reply reads the fields of a script's answer one after the other. err is the first error.
type reply struct {
	fields []any
	err    error
}

func newReply(v any, err error) reply {
	if err != nil {
		return reply{err: err}
	}
	fields, ok := v.([]any)
	if !ok {
		return reply{err: fmt.Errorf("%w: %T", errReply, v)}
	}
	return reply{fields: fields}
}

func (r *reply) next() any {
	if r.err == nil && len(r.fields) == 0 {
		r.err = fmt.Errorf("%w: too short", errReply)
	}
	if r.err != nil {
		return nil
	}
	v := r.fields[0]
	r.fields = r.fields[1:]
	return v
}

func (r *reply) text() string {
	v := r.next()
	s, ok := v.(string)
	if r.err == nil && !ok {
		r.err = fmt.Errorf("%w: want text, have %T", errReply, v)
	}
	return s
}

// number reads an integer. Scripts send large integers as digits, because Lua's own conversion
// would round them.
func (r *reply) number() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil && r.err == nil {
			r.err = fmt.Errorf("%w: want a number, have another text", errReply) // it may be a token, which is secret
		}
		return n
	default:
		if r.err == nil {
			r.err = fmt.Errorf("%w: want a number, have %T", errReply, v)
		}
		return 0
	}
}

// busy reads what the scripts return of a busy lock.
func (r *reply) busy() store.Result {
	a := store.Result{Holder: r.text()}
	a.Reserved = strings.HasPrefix(a.Holder, reservedPrefix)
	a.Left = time.Duration(r.number()) * time.Millisecond
	// A fence is the time of its grant, except a rare one that had to be raised.
	if last := r.number(); last > 0 {
		a.Since = time.UnixMicro(last)
	}
	a.Position, a.Ticket = int(r.number()), r.number()
	return a
}

func (r *reply) reservation(key string) *store.Reservation {
	return &store.Reservation{Key: key, Value: r.text(), Waiter: r.text(), Ticket: r.number()}
}

// reservationOf reads a reservation, and then the key that is reserved: a lock's or a permit's.
func (r *reply) reservationOf() *store.Reservation {
	next := r.reservation("")
	next.Key = r.text()
	return next
}

// later reads in how many ms the rates of a lock allow a start, -1 if they do not keep one away.
func (r *reply) later() time.Duration {
	return max(0, time.Duration(r.number())*time.Millisecond)
}

// started is the outcome of a release in which a waiter has started.
const started = 3

// handedOff reads what the scripts return that hand off the lock of key.
func (r *reply) handedOff(key string) (*store.Reservation, error) {
	switch outcome := r.number(); {
	case r.err != nil:
		return nil, r.err
	case outcome == 0 && len(r.fields) == 0:
		return nil, store.ErrLost
	case outcome == 0 && len(r.fields) == 1:
		return &store.Reservation{Key: key, Later: r.later()}, cmp.Or(r.err, store.ErrLost)
	case outcome == 0: // an operator has revoked it
		next := r.reservationOf()
		return next, cmp.Or(r.err, store.ErrLost)
	case outcome == 1 && len(r.fields) > 0:
		return &store.Reservation{Key: key, Later: r.later()}, r.err
	case outcome == 1:
		return nil, nil //nolint:nilnil // nobody to wake, and no error
	case outcome == started:
		grant := &store.Grant{Token: r.text(), Fence: r.number()}
		return &store.Reservation{Key: key, Grant: grant, Reply: r.fields}, r.err
	}
	next := r.reservationOf()
	return next, r.err
}
