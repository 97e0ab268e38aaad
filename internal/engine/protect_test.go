package engine

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/expect"
)

const secret = "the payload"

func panics(value any) { panic(value) }

func TestTry(t *testing.T) {
	t.Parallel()
	errOwn := errors.New("own")
	var none *asynq.Task
	for name, tc := range map[string]struct {
		f    func() (string, error)
		want string // "" for the error of its own
	}{
		"a text":      {func() (string, error) { panics("no stock"); return "", nil }, "]: no stock"},
		"an error":    {func() (string, error) { panics(errOwn); return "", nil }, "]: own"},
		"a number":    {func() (string, error) { panics(7); return "", nil }, "]: 7"},
		"a task":      {func() (string, error) { panics(asynq.NewTask("mail", []byte(secret))); return "", nil }, "]: *asynq.Task"},
		"a payload":   {func() (string, error) { panics([]byte(secret)); return "", nil }, "]: []uint8"},
		"nil":         {func() (string, error) { panics(nil); return "", nil }, "]: panic called with nil argument"},
		"a nil task":  {func() (string, error) { return none.Type(), nil }, "asynq.go:"},
		"an index":    {func() (string, error) { return strings.Split("a b", " ")[len(t.Name())], nil }, "protect_test.go:"},
		"Goexit":      {func() (string, error) { runtime.Goexit(); return "", nil }, "protect_test.go:"},
		"in a defer":  {func() (string, error) { defer panics("later"); return "done", nil }, "]: later"},
		"its own":     {func() (string, error) { return "text", errOwn }, ""},
		"none at all": {func() (string, error) { return "text", nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have, err := try(tc.f)
			if name != "Goexit" { // which would end the test
				_, same := caught(tc.f)
				expect.Equal(t, "error of caught", fmt.Sprint(same), fmt.Sprint(err))
			}
			if tc.want == "" {
				expect.That(t, have == "text" && (err == nil || errors.Is(err, errOwn)), "want what the function returned, have %q, %v", have, err)
				return
			}
			b, ok := err.(*brokenError) //nolint:errorlint // not wrapped
			expect.Need(t, ok, "want a *brokenError, have %v", err)
			expect.That(t, have == "" && strings.Contains(b.Error(), tc.want) && strings.Contains(b.Error(), "[/"), "want %q and a place, have %q, %v", tc.want, have, err)
			expect.That(t, strings.Contains(string(b.stack), "protect_test.go"), "want the stack of the function, have %s", b.stack)
		})
	}
}

func TestProtectLogsAndFallsBack(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func() int{
		"panic":  func() int { panics(asynq.NewTask("mail", []byte(secret))); return 1 },
		"goexit": func() int { runtime.Goexit(); return 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &logbook{}
			if have := protect(t.Context(), log.logger(), "RetryDelayFunc", 2, f); have != 2 {
				t.Errorf("want the fallback 2, have %d", have)
			}
			tell(t.Context(), log.logger(), "RetryDelayFunc", func() { f() })
			n := log.count("function=RetryDelayFunc")
			expect.That(t, n == 2 && log.count("level=ERROR") == 2 && log.count("protect_test.go") == 2, "want two errors with the name of the function and the stack, have:\n%v", log)
			expect.That(t, !strings.Contains(log.String(), secret) && !strings.Contains(log.String(), fmt.Sprintf("%d", []byte(secret))), "want no payload, have:\n%v", log)
		})
	}
	log := &logbook{}
	if have := protect(t.Context(), log.logger(), "RetryDelayFunc", 2, func() int { return 1 }); have != 1 || log.String() != "" {
		t.Errorf("want 1 and no line, have %d and:\n%v", have, log)
	}
}

func BenchmarkTry(b *testing.B) {
	for b.Loop() {
		_, _ = try(func() (string, error) { return "order:1", nil })
	}
}
