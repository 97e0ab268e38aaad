package hook_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// asynq asks for a task again at once when it got an error. While Redis is away, the hook must not
// let asynq spin. Once Redis is back, asynq must get tasks at once.
func TestDequeuesRestWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	synctest.Test(t, func(t *testing.T) {
		h := quiet()
		took := func(answer any) time.Duration {
			began := time.Now()
			process(t, h, replies(t, answer), calls["dequeue"])
			return time.Since(began)
		}
		for range 2 {
			if have := took(redis.Nil); have != 0 {
				t.Errorf("an empty queue: want no rest, have %v", have)
			}
			if have := took(io.EOF); have < 5*time.Millisecond || have > 20*time.Millisecond {
				t.Errorf("the first failure: want a rest of 10 to 20 ms, have %v", have)
			}
			different := map[time.Duration]bool{}
			for range 20 {
				different[took(io.EOF)] = true
			}
			if have := took(io.EOF); have < 500*time.Millisecond || have > time.Second || len(different) < 15 {
				t.Errorf("many failures: want a rest of 0.5 to 1 s, at random, have %v and %d different ones", have, len(different))
			}
			if have := took("\x1a\x06task-1"); have != 0 {
				t.Errorf("a task: want no rest, have %v", have)
			}
		}
	})
}

// So it must not while the first check fails, and nothing reaches Redis.
func TestDequeuesRestWhileTheFirstCheckFails(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	synctest.Test(t, func(t *testing.T) {
		h, broken := quiet(), true
		h.CheckFirst(func(context.Context, redis.ProcessHook) error {
			if broken {
				return io.EOF
			}
			return nil
		}, nil)
		began := time.Now()
		for range 20 {
			if cmd, sent := process(t, h, replies(t), calls["dequeue"]); !errors.Is(cmd.Err(), io.EOF) || len(sent) > 0 {
				t.Errorf("want the check's error and nothing sent, have %v, %v", cmd.Err(), sent)
			}
		}
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("want 20 dequeues to rest for 5 s and more, have %v", took)
		}
		broken = false
		process(t, h, replies(t, redis.Nil), calls["dequeue"])
	})
}
