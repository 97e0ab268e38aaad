package taskredis

import (
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// A key of uniqueness of another type changes nothing of what becomes of its task.
func TestUniqueKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	const key = "asynq:{q}:unique:x"
	for name, ends := range map[string]func(t *bench, s *stepper, taken Taken){
		"done": func(t *bench, s *stepper, taken Taken) {
			s.takes("", []Outcome{{Name: taken.Name, Kind: Done, Unique: key}}, 1, "q")
			t.must(t.rdb.Del(t.Context(), key).Err())
			t.gone()
		},
		"archived": func(t *bench, s *stepper, taken Taken) {
			s.takes("", []Outcome{{Name: taken.Name, Kind: Archive, Unique: key, Message: taken.Encoded}}, 1, "q")
			t.pending("q", "1", "a")
			s.takes("1 ", nil, 1, "q")
		},
		"crashed": func(t *bench, s *stepper, _ Taken) {
			t.crash("q", "0", "lock:a")
			t.pending("q", "1", "a")
			s.takes("0 ", nil, 2, "q")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServer(t, func(t *bench, s *stepper) {
				t.pending("q", "0", "a", "unique_key", key)
				t.must(t.rdb.LPush(t.Context(), key, "another type").Err())
				ends(t, s, s.takes("0 ", nil, 1, "q")[0])
			})
		})
	}
}

// The servers of a queue have gone, and then the clock stepped back: nobody waits for them until it is as late again.
func TestQueueWithoutServersAfterAStepOfTheClock(test *testing.T) {
	test.Parallel()
	t, memory := inMemory(test)
	clock, one, gone := time.Unix(1_800_000_000, 0), t.server("one"), t.server("gone")
	memory.SetTime(clock)
	t.pending("q", "holder", "a")
	holder := one.takes("holder ", nil, 1, "q")
	t.pending("empty", "waits", "a")
	gone.takes("", nil, 1, "empty")
	memory.SetTime(clock.Add(time.Second))
	t.pending("q", "mine", "a")
	one.takes("", nil, 1, "q")
	t.must(t.rdb.HSet(t.Context(), "siding:slots", "empty", clock.Add(time.Hour).UnixMicro()).Err())
	one.takes("mine ", done(holder...), 1, "q")
}

// The sentence for people names a holder by no more than a part of a long name, so asynq can read the task.
func TestSentenceOfALongHolder(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *bench, s *stepper) {
		t.pending("q", strings.Repeat("x", 40_000), "a")
		s.make(nil, 1, "q")
		t.pending("q", "1", "a")
		s.takes("", nil, 1, "q")
		message := expect.Value(t.rdb.HGet(t.Context(), TaskKey("q", "1"), "msg").Bytes())(t)
		m := expect.Value(DecodeMessage(message))(t)
		expect.That(t, strings.HasPrefix(m.ErrorMsg, "waits for a, held by ") && len(m.ErrorMsg) < 300, "want a short sentence, have %q", m.ErrorMsg)
		state := t.rdb.HGet(t.Context(), TaskKey("q", "1"), "state").Val()
		expect.That(t, state == "retry" && t.rdb.ZCard(t.Context(), LineKey("q", "lock:a")).Val() == 1, "want it in the line, have it %s", state)
	})
}
