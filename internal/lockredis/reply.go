package lockredis

import (
	"fmt"
	"strconv"
	"strings"
	"time"
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

// ms reads milliseconds.
func (r *reply) ms() time.Duration { return time.Duration(r.number()) * time.Millisecond }

// list reads an array, whose own error is for [reply.also].
func (r *reply) list() reply { return newReply(r.next(), r.err) }

// also takes over the error of a list.
func (r *reply) also(list *reply) {
	if r.err == nil {
		r.err = list.err
	}
}

// usTime returns the time of so many us, zero for none.
func usTime(us int64) time.Time {
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// isReserved reports whether a lock that holds value is reserved, and held by nobody.
func isReserved(value string) bool { return strings.HasPrefix(value, "siding-reserved:") }
