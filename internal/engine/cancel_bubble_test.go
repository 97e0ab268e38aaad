package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
)

const (
	lost = "not heard"
	back = "heard again"
)

// listening runs a cancellation for a test in a bubble, which ends it with end.
func listening(t *testing.T, redis redis.UniversalClient) (heard chan string, log *logbook, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	heard, log = make(chan string, 100), &logbook{}
	c := &cancellation{redis: redis, cancel: func(id string) { heard <- id }, logger: log.logger()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	end = func() {
		cancel()
		<-done
	}
	t.Cleanup(end)
	return heard, log, end
}

// hears wants a message to arrive.
func hears(t *testing.T, m *memory, heard <-chan string, id string) {
	t.Helper()
	synctest.Wait()
	m.mini.Publish(cancelChannel, id)
	synctest.Wait()
	select {
	case have := <-heard:
		expect.That(t, have == id, "want %s, have %s", id, have)
	default:
		t.Errorf("want %s, have nothing", id)
	}
}

func TestCancellationComesBack(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(m *memory){
		"cut":   func(m *memory) { m.cut() },
		"quiet": func(m *memory) { m.hole.Store(true) }, // nobody says that the connection is lost
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t)
				heard, log, _ := listening(t, m)
				hears(t, m, heard, "first")
				time.Sleep(time.Hour) // silence alone is no fault
				hears(t, m, heard, "second")
				expect.That(t, log.String() == "", "want no line yet, have:\n%v", log)
				m.away.Store(true)
				fail(m)
				time.Sleep(2*cancelSilence + time.Second)
				expect.That(t, log.count(lost) == 1, "want the loss known after two silences, have:\n%v", log)
				before := m.dials.Load()
				time.Sleep(time.Hour)
				// Each try dials twice: go-redis connects anew by itself.
				n := m.dials.Load() - before
				expect.That(t, n >= 3600/5 && n <= 2*3600/2.5+2, "want a try in 2.5 to 5 s, have %d in an hour", n)
				m.cut()
				m.hole.Store(false)
				m.away.Store(false)
				time.Sleep(cancelPauseMost)
				hears(t, m, heard, "third")
				expect.That(t, log.count(lost) == 1 && log.count(back) == 1 && log.count("") == 2, "want one line for the loss and one for the end of it, have:\n%v", log)
			})
		})
	}
}

// A connection that is lost after some time comes back at once.
func TestCancellationPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		m.away.Store(true)
		heard, log, _ := listening(t, m)
		time.Sleep(time.Minute)
		expect.That(t, log.count(lost) == 1 && log.count("") == 1, "want one line of a Redis that is away from the start, have:\n%v", log)
		m.away.Store(false)
		time.Sleep(time.Minute)
		m.cut()
		time.Sleep(cancelPauseFirst)
		hears(t, m, heard, "again")
	})
}

// The end of the server leaves no connection, closes no client and is in no log, also while the connection is silent, lost, or being made.
func TestCancellationEnds(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(m *memory){
		"well": func(*memory) {}, "silent": func(m *memory) { m.hole.Store(true) },
		"away": func(m *memory) { m.away.Store(true); m.cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t)
				heard, log, end := listening(t, m)
				hears(t, m, heard, "first")
				fault(m)
				synctest.Wait()
				lines := log.count("")
				began := time.Now()
				end()
				took := time.Since(began)
				expect.That(t, took == 0 && log.count("") == lines, "want an end at once without a word, have %v and:\n%v", took, log)
				synctest.Wait()
				left := m.mini.PubSubNumSub(cancelChannel)[cancelChannel]
				expect.That(t, name != "well" || left == 0 && m.Ping(t.Context()).Err() == nil, "want no subscriber, and the client open, have %d", left)
			})
		})
	}
}
