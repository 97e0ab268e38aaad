package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/engine"
	"github.com/sidingq/siding/internal/telemetry"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

func TestClass(t *testing.T) {
	t.Parallel()
	for resource, want := range map[string]string{
		"order:536365":                         "order",
		"sku:85123A:warehouse:7":               "sku",
		"536365":                               telemetry.Other,
		":536365":                              telemetry.Other,
		"":                                     telemetry.Other,
		queue.AllOf("item:7", "account:1"):     "account", // the first by the alphabet
		queue.AllOf("7", "item:7"):             telemetry.Other,
		"Kunde:Müller":                         "Kunde",
		strings.Repeat("x", 64) + ":1":         strings.Repeat("x", 64),
		strings.Repeat("x", 65) + ":1":         telemetry.Other,
		"https://shop.example/orders?id=53636": "https",
	} {
		if have := telemetry.Class(resource); have != want {
			t.Errorf("%s: want %s, have %s", resource, want, have)
		}
	}
}

// The outcome of a run is what becomes of its task.
func TestOutcome(t *testing.T) {
	t.Parallel()
	full, busy := errors.New("disk is full"), fmt.Errorf("account: %w", lock.ErrBusy)
	for _, c := range []struct {
		err  error
		lost bool
		want string
	}{
		{nil, false, telemetry.Done},
		{full, false, telemetry.Failed},
		{context.Canceled, false, telemetry.Failed},
		{engine.ErrNotBegun, true, telemetry.Lost},
		{nil, true, telemetry.Lost},
		{engine.ErrNotBegun, false, telemetry.Snoozed},
		{&engine.OtherResourceError{Resource: "order:2"}, false, telemetry.Snoozed},
		{busy, false, telemetry.Snoozed},
		{queue.Unavailable(full), false, telemetry.Snoozed},
		{queue.Unavailable(queue.Permanent(full)), false, telemetry.Snoozed},
		{queue.Permanent(full), false, telemetry.Failed},
		{queue.Permanent(busy), false, telemetry.Failed},
		{queue.Permanent(queue.Unavailable(full)), false, telemetry.Failed},
		{fmt.Errorf("%w: %w", busy, asynq.RevokeTask), false, telemetry.Failed},
	} {
		if have := telemetry.Outcome(c.err, c.lost); have != c.want {
			t.Errorf("%v, lost: %v: want %s, have %s", c.err, c.lost, c.want, have)
		}
	}
}

// However many words come, few have a value, each of them one.
func TestSetIsBounded(t *testing.T) {
	t.Parallel()
	created := make(map[string]int)
	s := telemetry.NewSet(func(word string) *string {
		created[word]++ // under the lock of the set
		return &word
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 10_000 {
				word := "w" + strconv.Itoa(i)
				if have := *s.Of(word); have != word && have != telemetry.Other {
					t.Errorf("%s: have %s", word, have)
				}
			}
		})
	}
	all.Wait()
	expect.That(t, len(created) == telemetry.Limit+1, "want %d values, have %d", telemetry.Limit+1, len(created))
	for word, n := range created {
		expect.That(t, n == 1, "%s: want one value, have %d", word, n)
	}
	for _, word := range []string{"later", telemetry.Other, ""} {
		if have := *s.Of(word); have != telemetry.Other {
			t.Errorf("%q: want %s, have %s", word, telemetry.Other, have)
		}
	}
}

// A word is UTF-8 and short, whatever a client calls its tasks.
func TestSetOfBadWords(t *testing.T) {
	t.Parallel()
	s := telemetry.NewSet(func(word string) string { return word })
	for word, want := range map[string]string{"a\xffb": "a?b", strings.Repeat("x", 65): telemetry.Other, "": telemetry.Other} {
		if have := s.Of(word); have != want {
			t.Errorf("%q: want %q, have %q", word, want, have)
		}
	}
}
