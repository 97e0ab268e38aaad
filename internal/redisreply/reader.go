package redisreply

import (
	"fmt"
	"strconv"
)

// ErrReply says that a script has returned something that none of our scripts returns.
var ErrReply error = replyError{}

type replyError struct{}

func (replyError) Error() string { return "unexpected reply of a script" }

// Passing reports that the error does not pass by itself.
func (replyError) Passing() bool { return false }

// A Reader reads the values of a script's answer one after the other. After an error they are all zero.
type Reader struct {
	values []any
	err    *error // the first, of this one and of all lists in it
}

// NewReader returns a Reader of an answer that is a list.
func NewReader(v any, err error) *Reader { return (&Reader{err: &err}).list(v) }

func (r *Reader) list(v any) *Reader {
	values, ok := v.([]any)
	if !ok {
		r.Fail(fmt.Sprintf("want a list, have %T", v))
	}
	return &Reader{values, r.err}
}

// Err returns the first error, also of the lists.
func (r *Reader) Err() error { return *r.err }

// Fail says what is wrong with the answer.
func (r *Reader) Fail(what string) {
	if *r.err == nil {
		*r.err = fmt.Errorf("%w: %s", ErrReply, what)
	}
}

// Len returns how many values were not read.
func (r *Reader) Len() int { return len(r.values) }

// More reports whether there are values that were not read.
func (r *Reader) More() bool { return len(r.values) > 0 && *r.err == nil }

func (r *Reader) next() any {
	if !r.More() {
		r.Fail("too short")
		return nil
	}
	v := r.values[0]
	r.values = r.values[1:]
	return v
}

// Text reads a text.
func (r *Reader) Text() string {
	v := r.next()
	s, ok := v.(string)
	if !ok {
		r.Fail(fmt.Sprintf("want a text, have %T", v))
	}
	return s
}

// Number reads an integer. Scripts send large integers as digits, because Lua's own conversion would round them.
func (r *Reader) Number() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		return r.Parse(v)
	default:
		r.Fail(fmt.Sprintf("want a number, have %T", v))
		return 0
	}
}

// Parse reads a number that is a part of a text.
func (r *Reader) Parse(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		r.Fail("want a number, have another text") // it may be a token, which is secret
	}
	return n
}

// List reads a list.
func (r *Reader) List() *Reader { return r.list(r.next()) }

// Texts reads a list of texts.
func (r *Reader) Texts() []string {
	l := r.List()
	all := make([]string, 0, len(l.values))
	for l.More() {
		all = append(all, l.Text())
	}
	return all
}
