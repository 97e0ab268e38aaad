package redlock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock/redlock"
)

var errDown = errors.New("connection refused")

// ballot makes votes of a text in which each letter is a node: + for yes, ! for no vote, and else
// the name of a rival. Node n lets that rival live on for n seconds, the first one 1.
func ballot(text string) (votes []redlock.Vote, errs []error) {
	for i, c := range text {
		vote, err := redlock.No(fmt.Sprint("run", i), string(c), time.Duration(i+1)*time.Second), error(nil)
		switch c {
		case '+':
			vote = redlock.Yes(fmt.Sprint("run", i))
		case '!':
			vote, err = redlock.Vote{}, errDown
		}
		votes, errs = append(votes, vote), append(errs, err)
	}
	return votes, errs
}

func TestGranted(t *testing.T) {
	t.Parallel()
	taken, nobody := store.Result{Taken: true}, store.Result{Split: true}
	busy := func(holder string, left int) store.Result {
		return store.Result{Holder: holder, Left: time.Duration(left) * time.Second}
	}
	maybe := func(holder string, left int) store.Result {
		return store.Result{Split: true, Holder: holder, Left: time.Duration(left) * time.Second}
	}
	for _, tc := range []struct {
		ballots string
		want    store.Result
		err     bool
	}{
		{"+++ ++! ++a +++++ +++!! +++a! +++ab", taken, false},
		{"!!! +!! a!! ++!!! +a!!! aa!!!", store.Result{}, true},
		{"++!! aa!!", store.Result{}, true}, // of four, three have to agree

		// The lock lives on until the rival has one node too few.
		{"aa! aaa!! aaab", busy("a", 1), false},
		{"aaa +aa aabaa", busy("a", 2), false},
		{"aaaaa ++aaa +aaaa +!aaa", busy("a", 3), false},

		// Nobody can have enough.
		{"+ab abc ++aab +aabb +!abc ++ab! abcde ++aa", nobody, false},

		// One has, if the silent have it, too.
		{"+a! !aab! +aa!", maybe("a", 2), false},
		{"++aa! ++a!!", maybe("a", 3), false},
		{"ab!", maybe("b", 2), false},
	} {
		for ballots := range strings.FieldsSeq(tc.ballots) {
			votes, errs := ballot(ballots)
			have, err := redlock.Granted(votes, errs)
			if diff := cmp.Diff(tc.want, have); diff != "" || tc.err != (err != nil) {
				t.Errorf("%s: want error %t and the answer below, have %v:\n%s", ballots, tc.err, err, diff)
			}
			if err != nil {
				wantBroken(t, ballots, err)
				expect.That(t, errors.Is(err, errDown), "%s: want the node's error, have %v", ballots, err)
			}
		}
	}
}

// TestForEver is a rival whose lock does not expire on the nodes that it needs.
func TestForEver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		lefts [5]time.Duration
		want  time.Duration
	}{{[5]time.Duration{-1, -1, -1, 1, 2}, -1}, {[5]time.Duration{-1, -1, 3, 1, 2}, 3}} {
		var votes []redlock.Vote
		for i, left := range tc.lefts {
			votes = append(votes, redlock.No(fmt.Sprint(i), "a", left))
		}
		have, err := redlock.Granted(votes, make([]error, 5))
		expect.That(t, err == nil && have.Left == tc.want, "%v: want %v left, have %+v, %v", tc.lefts, tc.want, have, err)
	}
}

// TestServerVotesOnce counts a server once that is there as two nodes.
func TestServerVotesOnce(t *testing.T) {
	t.Parallel()
	yes, no := redlock.Yes, func(run string) redlock.Vote { return redlock.No(run, "a", time.Second) }
	for name, tc := range map[string]struct {
		votes []redlock.Vote
		taken bool
		broke bool
	}{
		"two of three":               {[]redlock.Vote{yes("1"), yes("1"), yes("2")}, true, false},
		"one of three":               {[]redlock.Vote{yes("1"), yes("1"), yes("1")}, false, true},
		"three of five":              {[]redlock.Vote{yes("1"), yes("1"), yes("2"), yes("3"), yes("3")}, true, false},
		"two of five":                {[]redlock.Vote{yes("1"), yes("1"), yes("2"), no("3"), yes("2")}, false, false},
		"a rival with two of five":   {[]redlock.Vote{no("1"), no("1"), no("2"), yes("3"), yes("4")}, false, false},
		"it says yes and no":         {[]redlock.Vote{yes("1"), no("1"), yes("2")}, true, false},
		"a rival with one of three":  {[]redlock.Vote{no("1"), no("1"), no("1")}, false, true},
		"a rival with two and twice": {[]redlock.Vote{no("1"), no("1"), no("2")}, false, false},
	} {
		have, err := redlock.Granted(tc.votes, make([]error, len(tc.votes)))
		expect.That(t, have.Taken == tc.taken && tc.broke == (err != nil),
			"%s: want it taken %t, an error %t, have %+v, %v", name, tc.taken, tc.broke, have, err)
		expect.That(t, err == nil || strings.Contains(err.Error(), "B: is a server that has voted already"), "%s: want the second node named, have %v", name, err)
	}
}

// TestErrorNamesTheNodes, in one line, and keeps what they said.
func TestErrorNamesTheNodes(t *testing.T) {
	t.Parallel()
	other := errors.New("i/o timeout")
	votes, errs := ballot("+!!+!")
	errs[2] = other
	_, err := redlock.Granted(votes, errs)
	want := "redlock: 2 of 5 nodes voted, of which 3 have to agree: B: connection refused; C: i/o timeout; E: connection refused"
	expect.That(t, err != nil && err.Error() == want && errors.Is(err, errDown) && errors.Is(err, other), "want %q, have %v", want, err)
}

// TestUptime: of what a server takes for a second, up to one may not have passed.
func TestUptime(t *testing.T) {
	t.Parallel()
	for delay, want := range map[time.Duration]int64{
		redlock.NoRestartDelay:  0,
		time.Millisecond:        2,
		time.Second:             2,
		1001 * time.Millisecond: 3,
		15 * time.Second:        16,
	} {
		expect.Equal(t, delay.String(), redlock.Uptime(delay), want)
	}
}

// A refusal is an error with which the server itself has answered a call.
type refused string

func (e refused) Error() string { return string(e) }
func (refused) RedisError()     {}

// TestWhatPasses: a waiter goes on as long as the nodes that may come back make a majority, in any
// order.
func TestWhatPasses(t *testing.T) {
	t.Parallel()
	noperm, loading := refused("NOPERM this user has no permissions"), refused("LOADING Redis is loading the dataset in memory")
	for _, tc := range []struct {
		errs []error
		want bool
	}{
		{[]error{errDown, errDown, errDown}, true},
		{[]error{noperm, errDown, nil}, true},
		{[]error{nil, errDown, noperm}, true},
		{[]error{loading, loading, loading}, true},
		{[]error{noperm, loading, nil}, true},
		{[]error{noperm, noperm, nil}, false},
		{[]error{errDown, noperm, noperm}, false},
		{[]error{redlock.ErrReply, redlock.ErrReply, nil}, false}, // no server of ours
	} {
		votes := make([]redlock.Vote, len(tc.errs))
		for i := range votes {
			votes[i] = redlock.Yes(fmt.Sprint("run", i))
		}
		_, err := redlock.Granted(votes, tc.errs)
		wantPassing(t, err, tc.want)
	}
	same := []redlock.Vote{redlock.Yes("run"), redlock.Yes("run"), redlock.Yes("run")}
	_, err := redlock.Granted(same, make([]error, len(same)))
	wantPassing(t, err, false)
}

// wantPassing checks what an error says of itself.
func wantPassing(t *testing.T, err error, want bool) {
	t.Helper()
	passer, ok := errors.AsType[interface {
		error
		Passing() bool
	}](err)
	expect.That(t, ok && passer.Passing() == want, "want an error that passes (%t), have %v", want, err)
}
