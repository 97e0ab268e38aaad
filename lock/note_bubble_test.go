package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
)

// A noter is a store in memory that keeps notes, and says so.
type noter struct {
	*locktest.Memory

	start time.Time
	note  func(context.Context) error // what becomes of a note; nil for nothing

	mu    sync.Mutex
	notes []string
}

// Note implements [store.Noter]. It writes down when which lock was noted to wait for which: by its name
// in the wait queue (q), otherwise (-), or perhaps in another store (e).
func (n *noter) Note(ctx context.Context, key, token string, fence int64, waits []store.Wait, ttl time.Duration) error {
	text := fmt.Sprintf("%v %s:", time.Since(n.start).Round(100*time.Millisecond), strings.TrimPrefix(key, "lock:"))
	for _, w := range waits {
		how := "-"
		switch {
		case w.Elsewhere:
			how = "e"
		case strings.HasPrefix(w.Waiter, store.GoroutinePrefix):
			how = "q"
		}
		text += " " + strings.TrimPrefix(w.Key, "lock:") + " " + how
		if !w.Until.IsZero() {
			text += " " + w.Until.Sub(n.start).Round(time.Second).String()
		}
	}
	if n.Value(key) != token || fence == 0 || ttl != 15*time.Second {
		text += " not by its holder"
	}
	n.mu.Lock()
	n.notes = append(n.notes, text)
	n.mu.Unlock()
	if n.note != nil {
		return n.note(ctx)
	}
	return nil
}

// A nest is a holder of "a", in whose context others wait.
type nest struct {
	*noter

	held   *lock.Lease
	work   context.Context //nolint:containedctx // of the holder
	locker *lock.Locker
	other  *lock.Locker // of another process
}

// want fails the test unless these were the notes.
func (n *nest) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.notes, want) {
		t.Errorf("want the notes\n%s\nhave\n%s", strings.Join(want, "\n"), strings.Join(n.notes, "\n"))
	}
}

// busy has another process hold a lock for so long.
func (n *nest) busy(t *testing.T, resource string, d time.Duration) {
	t.Helper()
	held, err := n.other.Acquire(t.Context(), resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(d, func() { _ = held.Release(context.WithoutCancel(t.Context())) })
}

// wait takes another lock, and gives it back at once.
func (n *nest) wait(t *testing.T, resource string, opts *lock.Options) {
	t.Helper()
	if err := n.locker.Do(n.work, resource, opts, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

var forever = &lock.Options{Wait: lock.Forever}

// TestNotes: a holder notes for what its work waits, if that takes more than a second. Nobody waits for a
// note.
func TestNotes(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*testing.T, *nest){
		"free": func(t *testing.T, n *nest) {
			t.Helper()
			n.wait(t, "b", forever)
			time.Sleep(time.Minute)
			n.want(t)
		},
		"short": func(t *testing.T, n *nest) {
			t.Helper()
			for range 3 {
				n.busy(t, "b", 900*time.Millisecond)
				n.wait(t, "b", forever)
			}
			n.want(t)
		},
		"long": func(t *testing.T, n *nest) {
			t.Helper()
			n.busy(t, "b", 12*time.Second)
			n.wait(t, "b", forever)
			n.want(t, "1s a: b q", "6s a: b q", "11s a: b q", "12s a:")
			time.Sleep(time.Minute)
			n.busy(t, "b", 2*time.Second)
			n.wait(t, "b", forever)
			n.want(t, "1s a: b q", "6s a: b q", "11s a: b q", "12s a:", "1m13s a: b q", "1m14s a:")
		},
		"in vain": func(t *testing.T, n *nest) {
			t.Helper()
			n.busy(t, "b", time.Minute)
			ctx, cancel := context.WithTimeout(n.work, 3*time.Second) // a nested Wait may be shorter
			defer cancel()
			if _, err := n.locker.Acquire(ctx, "b", forever); !errors.Is(err, lock.ErrBusy) {
				t.Errorf("want ErrBusy, have %v", err)
			}
			n.want(t, "1s a: b q 3s", "3s a:")
		},
		"without a lease": func(t *testing.T, n *nest) {
			t.Helper()
			n.work = t.Context()
			n.busy(t, "b", 3*time.Second)
			n.wait(t, "b", forever)
			n.want(t)
		},
		"by polling": func(t *testing.T, n *nest) {
			t.Helper()
			n.busy(t, "b", 2950*time.Millisecond)
			n.wait(t, "b", &lock.Options{Wait: lock.Forever, Retry: lock.Fixed(100 * time.Millisecond)})
			n.want(t, "1s a: b -", "3s a:")
		},
		"in another store": func(t *testing.T, n *nest) {
			t.Helper()
			memory := locktest.NewMemory()
			n.locker, n.other = lockerOn(t, memory), lockerOn(t, memory)
			n.busy(t, "b", 3*time.Second)
			n.wait(t, "b", forever)
			n.want(t, "1s a: b e", "3s a:")
		},
		"several goroutines": func(t *testing.T, n *nest) {
			t.Helper()
			n.busy(t, "b", 4500*time.Millisecond)
			n.busy(t, "c", 6*time.Second)
			var all sync.WaitGroup
			for i, resource := range []string{"b", "b", "c"} { // the second waits in this process
				all.Go(func() {
					time.Sleep(time.Duration(i) * 700 * time.Millisecond)
					n.wait(t, resource, forever)
				})
			}
			all.Wait()
			n.want(t, "1s a: b q b -", "2s a: b q b - c q", "5s a: c q", "6s a:")
		},
		"two locks": func(t *testing.T, n *nest) {
			t.Helper()
			n.busy(t, "c", 1500*time.Millisecond)
			err := n.locker.Do(n.work, "b", forever, func(ctx context.Context) error {
				n.work = ctx
				n.wait(t, "c", forever)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			synctest.Wait()
			slices.Sort(n.notes)
			n.want(t, "1.5s a:", "1s a: c q", "1s b: c q")
		},
		"released meanwhile": func(t *testing.T, n *nest) {
			t.Helper()
			n.busy(t, "b", time.Minute)
			time.AfterFunc(3*time.Second, func() { _ = n.held.Release(context.WithoutCancel(t.Context())) })
			if _, err := n.locker.Acquire(n.work, "b", forever); !errors.Is(err, lock.ErrBusy) {
				t.Errorf("want ErrBusy, have %v", err)
			}
			time.Sleep(time.Minute)
			n.want(t, "1s a: b q")
		},
		"note hangs": func(t *testing.T, n *nest) {
			t.Helper()
			n.note = func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}
			n.busy(t, "b", 2*time.Second)
			n.wait(t, "b", forever)
			if err := n.held.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if took := time.Since(n.start); took != 2*time.Second {
				t.Errorf("want nobody to wait for a note, have %v", took)
			}
			time.Sleep(time.Minute)
			n.want(t, "1s a: b q")
		},
		"note fails": func(t *testing.T, n *nest) {
			t.Helper()
			n.note = func(context.Context) error { return locktest.ErrNetwork }
			n.busy(t, "b", 7*time.Second)
			n.wait(t, "b", forever)
			n.want(t, "1s a: b q", "6s a: b q", "7s a:")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := &nest{noter: &noter{Memory: locktest.NewMemory(), start: time.Now()}}
				n.locker, n.other = lockerOn(t, n.noter), lockerOn(t, n.noter)
				var err error
				if n.held, err = n.locker.Acquire(t.Context(), "a", nil); err != nil {
					t.Fatal(err)
				}
				n.work = n.held.Context(t.Context())
				run(t, n)
				_ = n.held.Release(t.Context())
			})
		})
	}
}

// TestNoteHasTheEndOfTheHold: the wait ends with the holder's lease, too.
func TestNoteHasTheEndOfTheHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &nest{noter: &noter{Memory: locktest.NewMemory(), start: time.Now()}}
		n.locker, n.other = lockerOn(t, n.noter), lockerOn(t, n.noter)
		n.busy(t, "b", time.Minute)
		err := n.locker.Do(t.Context(), "a", &lock.Options{MaxHold: 4 * time.Second}, func(ctx context.Context) error {
			_, err := n.locker.Acquire(ctx, "b", &lock.Options{Wait: 10 * time.Second})
			return err
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("want ErrLost, have %v", err)
		}
		n.want(t, "1s a: b q 4s")
	})
}
