package hook_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

// asynq repeats one by one, at its shutdown too. While Redis is away, the first of many may take
// its time, and the others must not.
func TestRepeatsToARedisThatIsAwayEndSoon(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	synctest.Test(t, func(t *testing.T) {
		h := quiet()
		a := asDequeued(t, h, calls)
		a.Park(asynqredis.Park{At: time.Now().Add(time.Hour)})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		sent := 0
		hangs := h.ProcessHook(func(ctx context.Context, cmd redis.Cmder) error {
			sent++
			<-ctx.Done()
			cmd.SetErr(ctx.Err())
			return ctx.Err()
		})
		began := time.Now()
		for range 50 {
			if err := hangs(cancelled, redis.NewCmd(cancelled, calls["retry"]...)); err == nil {
				t.Fatal("want an error from a Redis that is away")
			}
		}
		if took := time.Since(began); took > 2*time.Second || sent != 1 {
			t.Errorf("want one call, and an end within 2 s, have %d, %v", sent, took)
		}
		time.Sleep(2 * time.Second)
		cmd := redis.NewCmd(cancelled, calls["retry"]...)
		w := &wire{answer: replies(t, []any{int64(1), int64(0)})}
		if err := h.ProcessHook(w.process)(cancelled, cmd); err != nil || len(w.sent) != 1 {
			t.Errorf("want it sent again later, have %v, %v", w.sent, err)
		}
	})
}

// An acknowledgement that Redis rejects for a while, as while a slot moves, is sent again until
// Redis takes it. After ten seconds asynq gets the error.
func TestAcknowledgementIsRefusedForAWhile(t *testing.T) {
	t.Parallel()
	calls := callsOfAsynq(t)
	for name, call := range calls {
		for lasts, refused := range map[time.Duration]bool{8 * time.Second: false, 20 * time.Second: true} {
			if name == "dequeue" {
				continue
			}
			t.Run(name+" "+lasts.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					h := quiet()
					asDequeued(t, h, calls)
					asText := slices.Clone(call)
					text, _ := texts.Load(call[1])
					asText[0], asText[1] = "eval", text
					start := time.Now()
					process := h.ProcessHook(func(_ context.Context, cmd redis.Cmder) error {
						if time.Since(start) < lasts {
							cmd.SetErr(tryAgainError{})
							return tryAgainError{}
						}
						return nil
					})
					cmd := redis.NewCmd(t.Context(), asText...)
					err := process(t.Context(), cmd)
					if took := time.Since(start); (err != nil) != refused || !errors.Is(err, cmd.Err()) || took > 11*time.Second {
						t.Errorf("want it refused: %t, have %v, %v after %v", refused, err, cmd.Err(), took)
					}
				})
			})
		}
	}
}

type tryAgainError struct{}

func (tryAgainError) Error() string { return "TRYAGAIN Multiple keys request during rehashing of slot" }
func (tryAgainError) RedisError()   {}
