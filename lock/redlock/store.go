package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// A majority keeps each lock on most of its nodes.
type majority struct {
	nodes []node
	cfg   Config
}

// Acquire takes the lock on enough nodes, or leaves it on none. Too few votes are released
// everywhere before Acquire returns, even if ctx has ended.
func (s *majority) Acquire(ctx context.Context, request store.Request) (store.Result, error) {
	if err := s.usable(ctx, request.TTL); err != nil {
		return store.Result{}, err
	}
	delay := s.cfg.RestartDelay
	if delay != NoRestartDelay {
		delay = max(delay, request.TTL)
	}
	result, err := s.poll(ctx, func(ctx context.Context, n node) (vote, error) { return n.Acquire(ctx, request, delay) }).granted()
	if !result.Taken {
		// Nodes that did not answer may have voted for us. So may those that said no to a call
		// that was sent again, after another program had the lock in between.
		s.poll(context.WithoutCancel(ctx), func(ctx context.Context, n node) (vote, error) { return n.Release(ctx, request.Key, request.Token) })
	}
	return result, err
}

// Renew prolongs the lock on the nodes that have it. Nodes that lost it do not get it back,
// as one cannot know whom they have promised it since.
func (s *majority) Renew(ctx context.Context, key, token string, ttl, _ time.Duration) error {
	if err := s.usable(ctx, ttl); err != nil {
		return err
	}
	return s.poll(ctx, func(ctx context.Context, n node) (vote, error) { return n.Renew(ctx, key, token, ttl) }).had()
}

// Release deletes the lock on all nodes that have it.
func (s *majority) Release(ctx context.Context, key, token string, _ store.Release) error {
	return s.poll(ctx, func(ctx context.Context, n node) (vote, error) { return n.Release(ctx, key, token) }).had()
}

// Leave finds out whether enough nodes answer, as a quorum has no wait queue.
func (s *majority) Leave(ctx context.Context, key, waiter string, _ store.Leave) error {
	if err := s.Release(ctx, key, waiter, store.Release{}); !errors.Is(err, store.ErrLost) {
		return err
	}
	return nil
}

// usable returns why a lock of this ttl cannot be had now.
func (s *majority) usable(ctx context.Context, ttl time.Duration) error {
	if most := ttl / 2; s.cfg.NodeTimeout > most {
		return storeError{fmt.Errorf("redlock: node timeout: want at most half of the ttl (%v), have %v", most, s.cfg.NodeTimeout), false}
	}
	return ctx.Err()
}

// poll asks all nodes at once, and counts their votes when all have voted or their time is over.
// The call does not stop at a majority. A straggler could take the lock on its node after the
// release. Nor does it stop when ctx is cancelled, for the same reason; only its deadline counts.
func (s *majority) poll(ctx context.Context, ask func(context.Context, node) (vote, error)) tally {
	return count(s.nodes, atOnce(ctx, s.cfg.NodeTimeout, s.nodes, ask))
}

// An answer is what one of those said who were asked at once.
type answer[A any] struct {
	of  A
	err error
}

var errSilent = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)

// atOnce asks all, and waits for their answers for as long as longest, or until the deadline
// of ctx. Nothing is asked once ctx has ended.
//
// The calls know their deadline. A call that ignores it ends by itself later, and nobody
// reads its answer.
func atOnce[Q, A any](ctx context.Context, longest time.Duration, all []Q, ask func(context.Context, Q) (A, error)) []answer[A] {
	answers := make([]answer[A], len(all))
	for i := range answers {
		answers[i].err = cmp.Or(ctx.Err(), errSilent)
	}
	if ctx.Err() != nil {
		return answers
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		call, cancel = context.WithDeadline(call, deadline)
		defer cancel()
	}
	type numbered struct {
		answer[A]

		i int
	}
	came := make(chan numbered, len(all))
	for i, one := range all {
		go func() {
			said, err := ask(call, one)
			came <- numbered{answer[A]{said, err}, i}
		}()
	}
	for range all {
		select {
		case a := <-came:
			answers[a.i] = a.answer
			continue
		case <-call.Done():
		}
		select { // one that came at the same moment
		case a := <-came:
			answers[a.i] = a.answer
		default:
			return answers
		}
	}
	return answers
}
