package lockredis

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// make makes a call, and returns what came of it when it is over.
func (p *post) make(ctx context.Context, m *committer, key string) <-chan error {
	over := make(chan error, 1)
	go func() {
		reply, err := m.do(ctx, key)
		if err == nil && reply != key {
			err = fmt.Errorf("want the answer of %s, have %v", key, reply)
		}
		over <- err
	}()
	synctest.Wait()
	return over
}

// answer has one group answered that is under way.
func (p *post) answer() {
	p.answers <- struct{}{}
	synctest.Wait()
}

// bubble runs a test with a committer that may have so many groups under way, beside others that hang for ever.
func bubble(t *testing.T, groups int, test func(t *testing.T, p *post, m *committer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &post{answers: make(chan struct{})}
		m := newCommitter(p.send)
		for range mostGroups - groups {
			m.groups = append(m.groups, &group{timer: time.AfterFunc(0, func() {})})
		}
		test(t, p, m)
	})
}

func want(t *testing.T, wants error, calls ...<-chan error) {
	t.Helper()
	for i, over := range calls {
		select {
		case err := <-over:
			expect.Is(t, fmt.Sprintf("call %d", i), err, wants)
		default:
			t.Errorf("call %d: want it over", i)
		}
	}
}

// Calls that come while others are under way go together, one for each lock.
func TestCommitInGroups(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, p *post, m *committer) {
		t.Helper()
		a := p.make(t.Context(), m, "a")
		p.wantSent(t, "a")
		var rest []<-chan error
		for _, key := range []string{"b", "c", "b", "{c}siding:permit:1", "d"} {
			rest = append(rest, p.make(t.Context(), m, key))
		}
		p.answer()
		want(t, nil, a)
		p.wantSent(t, "a", "b c d")
		p.answer()
		p.wantSent(t, "a", "b c d", "b {c}siding:permit:1")
		p.answer()
		want(t, nil, rest...)
		e := p.make(t.Context(), m, "e")
		p.wantSent(t, "a", "b c d", "b {c}siding:permit:1", "e")
		p.answer()
		want(t, nil, e)
	})
}

// No script has so many calls that Redis does nothing else for long. Those who are too many for a group, or come for its
// locks, wait for it, but with no more patience than others if it hangs.
func TestCommitInBoundedGroups(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"answered": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, p *post, m *committer) {
				t.Helper()
				calls := []<-chan error{p.make(t.Context(), m, "first")}
				for i := range mostCalls + 1 {
					calls = append(calls, p.make(t.Context(), m, fmt.Sprint(i)))
				}
				p.answer()
				groups := 1 // to be answered
				if hangs {
					time.Sleep(patience)
					synctest.Wait()
					groups = 2
				} else {
					p.answer()
				}
				last := p.sent[len(p.sent)-1]
				expect.That(t, len(p.sent) == 3 && last == fmt.Sprint(mostCalls), "want the last call to go alone, have %d groups, the last of %q", len(p.sent), last)
				for range groups {
					p.answer()
				}
				want(t, nil, calls...)
			})
		})
	}
}

// A connection that hangs holds up the calls of others for a moment only.
func TestCommitBesideWhatHangs(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, p *post, m *committer) {
		t.Helper()
		a := p.make(t.Context(), m, "a")
		b := p.make(t.Context(), m, "b")
		time.Sleep(patience - time.Nanosecond)
		synctest.Wait()
		p.wantSent(t, "a")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		p.wantSent(t, "a", "b")
		time.Sleep(2 * patience)
		c := p.make(t.Context(), m, "c") // nothing waits, and both hang
		p.wantSent(t, "a", "b", "c")
		for range 3 {
			p.answer()
		}
		want(t, nil, a, b, c)
	})
}

// A call does not wait for the whole round trip of the one before.
func TestCommitBesideWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	bubble(t, mostGroups, func(t *testing.T, p *post, m *committer) {
		t.Helper()
		var calls []<-chan error
		var sent []string
		for i := range mostGroups {
			sent = append(sent, fmt.Sprint(i))
			calls = append(calls, p.make(t.Context(), m, sent[i]))
			p.wantSent(t, sent...)
		}
		calls = append(calls, p.make(t.Context(), m, "a"), p.make(t.Context(), m, "b"))
		p.wantSent(t, sent...)
		p.answer()
		p.wantSent(t, append(sent, "a b")...)
		want(t, nil, calls[0])
		for range mostGroups {
			p.answer()
		}
		want(t, nil, calls[1:]...)
	})
}

// A call waits for the one that is under way for its lock, but not if that hangs; others do not wait for it.
func TestCommitOfOneLock(t *testing.T) {
	t.Parallel()
	bubble(t, mostGroups, func(t *testing.T, p *post, m *committer) {
		t.Helper()
		calls := []<-chan error{p.make(t.Context(), m, "a")}
		calls = append(calls, p.make(t.Context(), m, "{a}siding:permit:1"))
		p.wantSent(t, "a")
		calls = append(calls, p.make(t.Context(), m, "b"))
		p.wantSent(t, "a", "b")
		time.Sleep(patience - time.Nanosecond)
		synctest.Wait()
		p.wantSent(t, "a", "b")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		p.wantSent(t, "a", "b", "{a}siding:permit:1")
		calls = append(calls, p.make(t.Context(), m, "a")) // for the permit, whatever becomes of the first call
		p.answer()
		p.wantSent(t, "a", "b", "{a}siding:permit:1")
		for range 2 {
			p.answer()
		}
		p.wantSent(t, "a", "b", "{a}siding:permit:1", "a")
		p.answer()
		want(t, nil, calls...)
	})
}

// A caller whose context ends goes: at once if its call has not left; else at its deadline. Those that go with it get their
// answers all the same, also if it was to send for them.
func TestCommitForThoseWhoLeave(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		made   func(context.Context) (context.Context, context.CancelFunc)
		ends   func(context.CancelFunc)
		why    error
		waited bool // for the call that is under way
	}{
		"canceled": {context.WithCancel, func(cancel context.CancelFunc) { cancel() }, context.Canceled, true},
		"its deadline": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Millisecond)
			},
			func(context.CancelFunc) { time.Sleep(time.Millisecond) }, context.DeadlineExceeded, false,
		},
		"canceled before its deadline": {
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Millisecond)
			},
			func(cancel context.CancelFunc) {
				cancel()
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}, context.Canceled, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, p *post, m *committer) {
				t.Helper()
				a := p.make(t.Context(), m, "a")
				ctx, cancel := test.made(t.Context())
				defer cancel()
				withdrawn := p.make(ctx, m, "withdrawn")
				test.ends(cancel)
				synctest.Wait()
				want(t, test.why, withdrawn)

				ctx, cancel = test.made(t.Context())
				defer cancel()
				leads := p.make(ctx, m, "leads")
				b := p.make(t.Context(), m, "b")
				p.answer()
				want(t, nil, a)
				p.wantSent(t, "a", "leads b")
				test.ends(cancel)
				synctest.Wait()
				if !test.waited {
					want(t, test.why, leads)
				}
				p.answer()
				want(t, nil, b)
				if test.waited {
					want(t, nil, leads)
				}
			})
		})
	}
}

// A hook of the user's client that panics, in a goroutine that the user does not know, ends no process, and nobody waits for ever.
func TestCommitOfAClientThatPanics(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, p *post, m *committer) {
		t.Helper()
		one, two := p.make(t.Context(), m, "one"), p.make(t.Context(), m, "two")
		send := m.send
		m.send = func(context.Context, []*call) { panic("a hook") }
		a, b := p.make(t.Context(), m, "a"), p.make(t.Context(), m, "b")
		p.answer()
		for _, over := range []<-chan error{a, b} {
			if err := <-over; err == nil || err.Error() != "the client of Redis has panicked: a hook" {
				t.Errorf("want the panic as the error, have %v", err)
			}
		}
		m.send = send
		c := p.make(t.Context(), m, "c")
		p.answer()
		p.answer()
		want(t, nil, one, two, c)
	})
}

// Redis may acquire a lock after the caller has gone, as others are waited for whose calls go with it. The release comes at once, for
// what Redis has done, and once more when nothing is under way that may take the lock.
func TestReleaseBehindALateAcquire(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		replies []any // of the releases
		want    error
	}{
		"the first one frees":  {[]any{int64(1), int64(0)}, nil},
		"the second one frees": {[]any{int64(0), int64(1)}, nil},
		"neither":              {[]any{int64(0), int64(0)}, store.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, p *post, m *committer) {
				t.Helper()
				send, replies := m.send, test.replies
				m.send = func(ctx context.Context, calls []*call) {
					if c := calls[0]; len(c.args) == 0 || c.args[0] != "release" {
						send(ctx, calls)
						return
					}
					p.mu.Lock()
					defer p.mu.Unlock()
					p.sent = append(p.sent, "release")
					calls[0].reply, replies = replies[0], replies[1:]
				}
				s := &redisStore{do: m.do}
				start := func(call func(ctx context.Context) error) <-chan error {
					over := make(chan error, 1)
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						over <- call(ctx)
					}()
					synctest.Wait()
					return over
				}
				acquire := func(ctx context.Context) error {
					_, err := s.Acquire(ctx, store.Request{Key: "a", Token: "token"})
					return err
				}
				release := func(ctx context.Context) error { return s.Release(ctx, "a", "token", store.Release{}) }

				one, two := p.make(t.Context(), m, "one"), p.make(t.Context(), m, "two")
				acquired := start(acquire)
				b := p.make(t.Context(), m, "b") // with which it leaves
				p.answer()
				p.wantSent(t, "one", "two", "a b")
				time.Sleep(time.Second)
				synctest.Wait()
				want(t, context.DeadlineExceeded, acquired)

				released := start(release)
				p.wantSent(t, "one", "two", "a b", "release")
				p.answer() // to the second call
				p.wantSent(t, "one", "two", "a b", "release")
				p.answer()
				p.wantSent(t, "one", "two", "a b", "release", "release")
				want(t, nil, one, two, b)
				want(t, test.want, released)
			})
		})
	}
}
