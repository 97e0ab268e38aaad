package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

var errSameServer = errors.New("is a server that has voted already")

// quorum is how many of n votes decide: of two such groups one node is in both.
func quorum(n int) int { return n/2 + 1 }

// A tally is the votes of all nodes, each server counted once.
type tally struct {
	nodes int
	yes   int
	no    []vote
	mute  int   // did not vote
	stuck int   // of those, who will not before something is done about it
	err   error // why, of all of them
}

// count counts what each of nodes has answered.
func count(nodes []node, answers []answer[vote]) tally {
	t := tally{nodes: len(answers)}
	voted := make(map[string]bool, len(answers))
	for i, a := range answers {
		if a.err == nil && voted[a.of.run] {
			a.err = errSameServer
		}
		switch {
		case a.err != nil:
			t.miss(nodes[i], a.err)
			continue
		case a.of.yes:
			t.yes++
		default:
			t.no = append(t.no, a.of)
		}
		voted[a.of.run] = true
	}
	return t
}

// miss counts a node that did not vote.
func (t *tally) miss(n node, why error) {
	t.mute++
	if refuses(why) || errors.Is(why, errReply) || errors.Is(why, errSameServer) {
		t.stuck++
	}
	why = fmt.Errorf("%s: %w", n.name, why)
	if t.err != nil {
		why = fmt.Errorf("%w; %w", t.err, why) // as errors.Join, in one line
	}
	t.err = why
}

// won reports whether enough have said yes.
func (t tally) won() bool { return t.yes >= quorum(t.nodes) }

// undecided reports whether so many did not vote that the others decide nothing.
func (t tally) undecided() bool { return t.mute > t.nodes-quorum(t.nodes) }

func (t tally) failed() error {
	err := fmt.Errorf("redlock: %d of %d nodes voted, of which %d have to agree: %w", t.nodes-t.mute, t.nodes, quorum(t.nodes), t.err)
	return storeError{err, t.nodes-t.stuck >= quorum(t.nodes)}
}

// A storeError says to the Locker whether it may pass: whether enough nodes may vote by
// themselves, later.
type storeError struct {
	error

	passes bool
}

func (e storeError) Unwrap() error { return e.error }

// Passing reports whether there is any use in waiting for the end of it.
func (e storeError) Passing() bool { return e.passes }

// granted decides a request. Whoever has enough nodes holds the lock. If nobody was seen to
// have them, the vote is split. A rival that may have enough, together with the nodes that
// did not vote, is named as the holder.
func (t tally) granted() (store.Result, error) {
	need := quorum(t.nodes)
	switch rival := t.strongest(); {
	case t.won():
		return store.Result{Taken: true}, nil
	case t.undecided():
		return store.Result{}, t.failed()
	case rival.nodes >= need:
		return store.Result{Holder: rival.token, Left: rival.left}, nil
	case rival.nodes+t.mute >= need:
		return store.Result{Split: true, Holder: rival.token, Left: rival.left}, nil
	default:
		return store.Result{Split: true}, nil
	}
}

// had decides a renewal or a release: whether the lock was the token's.
func (t tally) had() error {
	switch {
	case t.won():
		return nil
	case len(t.no) > t.nodes-quorum(t.nodes):
		return lock.ErrLost
	default:
		return t.failed()
	}
}

// A rival is one for whom others have voted.
type rival struct {
	token string
	nodes int
	left  time.Duration // for which it keeps those of them that it needs
}

// strongest is the rival with the most nodes.
func (t tally) strongest() (best rival) {
	left := make(map[string][]time.Duration)
	for _, v := range t.no {
		if v.left < 0 {
			v.left = math.MaxInt64
		}
		left[v.holder] = append(left[v.holder], v.left)
	}
	for token, lefts := range left {
		slices.SortFunc(lefts, func(a, b time.Duration) int { return cmp.Compare(b, a) })
		r := rival{token: token, nodes: len(lefts), left: lefts[min(len(lefts), quorum(t.nodes))-1]}
		if r.left == math.MaxInt64 {
			r.left = -1
		}
		if cmp.Or(cmp.Compare(r.nodes, best.nodes), cmp.Compare(r.left, best.left), cmp.Compare(r.token, best.token)) > 0 {
			best = r
		}
	}
	return best
}
