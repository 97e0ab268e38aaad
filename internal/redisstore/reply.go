package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// A replyError says that a script has returned what none of ours does.
type replyError struct{}

func (replyError) Error() string { return "lock: unexpected reply of a script" }

// Passing says that no other try helps.
func (replyError) Passing() bool { return false }

var errReply error = replyError{}

// reply reads the fields of a script's answer one after the other; the first
// that is not what is asked for is remembered in err.
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

// number reads an integer, which scripts send as such or, beyond the precision
// of Lua's own conversion, as digits.
func (r *reply) number() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil && r.err == nil {
			r.err = fmt.Errorf("%w: %w", errReply, err)
		}
		return n
	default:
		if r.err == nil {
			r.err = fmt.Errorf("%w: want a number, have %T", errReply, v)
		}
		return 0
	}
}

func (r *reply) microseconds() time.Duration { return time.Duration(r.number()) * time.Microsecond }

// refusal reads what the scripts answer about a lock that could not be had.
func (r *reply) refusal() store.Answer {
	a := store.Answer{Holder: r.text()}
	a.Reserved = strings.HasPrefix(a.Holder, reservedPrefix)
	a.Left = time.Duration(r.number()) * time.Millisecond
	// A fence is the time of its grant, but for the rare one that had to be raised.
	if last := r.number(); last > 0 {
		a.Since = time.UnixMicro(last)
	}
	a.Place, a.Ticket, a.Waited = int(r.number()), r.number(), r.microseconds()
	return a
}

func (r *reply) turn() *store.Turn {
	return &store.Turn{Value: r.text(), Waiter: r.text(), Ticket: r.number()}
}

// begun is the outcome of a release in which a waiter has begun.
const begun = 3

// passedOn reads what the scripts answer that pass on a lock.
func (r *reply) passedOn() (*store.Turn, error) {
	outcome := r.number()
	switch {
	case r.err != nil:
		return nil, r.err
	case outcome == 0:
		return nil, store.ErrLost
	case outcome == 1:
		return nil, nil //nolint:nilnil // nobody has to be called: no turn and no error
	}
	if outcome == begun {
		return &store.Turn{Token: r.text(), Fence: r.number(), Answer: r.fields}, r.err
	}
	next := r.turn()
	return next, r.err
}
