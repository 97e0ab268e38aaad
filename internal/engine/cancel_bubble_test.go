package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
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
		if have != id {
			t.Errorf("want %s, have %s", id, have)
		}
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
				if log.String() != "" {
					t.Errorf("want no line yet, have:\n%v", log)
				}
				m.away.Store(true)
				fail(m)
				time.Sleep(2*cancelSilence + time.Second)
				if log.count(lost) != 1 {
					t.Errorf("want the loss known after two silences, have:\n%v", log)
				}
				before := m.dials.Load()
				time.Sleep(time.Hour)
				// Each try dials twice: go-redis connects anew by itself.
				if n := m.dials.Load() - before; n < 3600/5 || n > 2*3600/2.5+2 {
					t.Errorf("want a try in 2.5 to 5 s, have %d in an hour", n)
				}
				m.cut()
				m.hole.Store(false)
				m.away.Store(false)
				time.Sleep(cancelPauseMost)
				hears(t, m, heard, "third")
				if log.count(lost) != 1 || log.count(back) != 1 || log.count("") != 2 {
					t.Errorf("want one line for the loss and one for the end of it, have:\n%v", log)
				}
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
		if log.count(lost) != 1 || log.count("") != 1 {
			t.Errorf("want one line of a Redis that is away from the start, have:\n%v", log)
		}
		m.away.Store(false)
		time.Sleep(time.Minute)
		m.cut()
		time.Sleep(cancelPauseFirst)
		hears(t, m, heard, "again")
	})
}

// The end of the server is in no log, also while the connection is silent, lost, or being made.
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
				if took := time.Since(began); took > 0 || log.count("") != lines {
					t.Errorf("want an end at once without a word, have %v and:\n%v", took, log)
				}
			})
		})
	}
}

// asynq's Inspector is heard, and of the client nothing is left open or closed.
func TestCancellationByInspector(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	heard, log, end := listening(t, client)
	subscribers := func() int64 { return client.PubSubNumSub(t.Context(), cancelChannel).Val()[cancelChannel] }
	expect.Eventually(t, "a subscriber", func() bool { return subscribers() == 1 })
	if err := asynq.NewInspectorFromRedisClient(client).CancelProcessing("task-1"); err != nil {
		t.Fatal(err)
	}
	if have := <-heard; have != "task-1" {
		t.Errorf("want task-1, have %s", have)
	}
	if err := client.Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, "the connection back", func() bool { return subscribers() == 1 && log.count(back) == 1 })
	end()
	expect.Eventually(t, "no subscriber", func() bool { return subscribers() == 0 })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("want the client open, have %v", err)
	}
	if log.count("") != 2 {
		t.Errorf("want two lines, have:\n%v", log)
	}
}
