package lock_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

const (
	ms  = time.Millisecond
	day = 24 * time.Hour
)

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	defaults := lock.Config{
		Prefix: "lock:", TTL: 15 * time.Second, RenewEvery: 5 * time.Second, SafetyMargin: time.Second,
		HandoffTimeout: time.Second, FenceRetention: time.Minute,
	}
	followed := defaults
	followed.TTL, followed.RenewEvery, followed.SafetyMargin = 3*time.Second, time.Second, 200*ms
	set := lock.Config{
		Prefix: "erp/", TTL: 10 * time.Second, RenewEvery: time.Second, SafetyMargin: 2 * time.Second,
		HandoffTimeout: time.Second, FenceRetention: time.Hour,
	}
	for name, tc := range map[string]struct{ cfg, want lock.Config }{
		"zero value": {lock.Config{}, defaults},
		"renewal and safety margin follow the ttl": {lock.Config{TTL: 3 * time.Second}, followed},
		"what is set stays":                        {set, set},
	} {
		client := expect.Value(lease.New(newFake().Store, lease.Config(tc.cfg)))(t)
		expect.Equal(t, name, lock.Config(client.Config()), tc.want)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	const ours = "want one that no key of Siding's or asynq's own begins with, have "
	for _, tc := range []struct {
		cfg  lock.Config
		want string // "" for a good one
	}{
		{lock.Config{}, ""},
		{lock.Config{TTL: 100 * ms}, ""},
		{lock.Config{TTL: day}, ""},
		{lock.Config{TTL: 10 * time.Second, SafetyMargin: 2 * time.Second, RenewEvery: 4 * time.Second}, ""}, // two renewals just fit
		{lock.Config{Prefix: lock.NoPrefix}, ""},

		{lock.Config{Prefix: "{a}:"}, `prefix: braces would change the Redis Cluster slot of companion keys, have "{a}:"`},
		{lock.Config{Prefix: "asynq:x"}, "prefix: " + ours + `"asynq:x"`},
		{lock.Config{Prefix: "siding:"}, "prefix: " + ours + `"siding:"`},
		{lock.Config{Prefix: "asynq"}, "prefix: " + ours + `"asynq"`}, // the resource ":{default}:paused" would pause a queue
		{lock.Config{Prefix: "s"}, "prefix: " + ours + `"s"`},
		{lock.Config{Prefix: "wait:"}, "prefix: " + ours + `"wait:"`}, // the resource "lock:order:1" would keep tasks from their turn
		{lock.Config{TTL: 99 * ms}, "ttl: want 100ms to 24h, have 99ms"},
		{lock.Config{TTL: -time.Second}, "ttl: want 100ms to 24h, have -1s"},
		{lock.Config{TTL: day + time.Hour}, "ttl: want 100ms to 24h, have 25h0m0s"},
		{lock.Config{RenewEvery: -1}, "renew every: want 1ms to 24h, have -1ns"},
		{lock.Config{RenewEvery: ms / 1000}, "renew every: want 1ms to 24h, have 1µs"}, // a busy loop
		{lock.Config{SafetyMargin: -1}, "safety margin: want 1ms to 24h, have -1ns"},
		// Redis keeps whole milliseconds, so a TTL of 100.9 ms becomes 100. A safety margin
		// below 0.9 ms would not cover the rest.
		{lock.Config{TTL: 100900 * time.Microsecond, SafetyMargin: time.Microsecond}, "safety margin: want 1ms to 24h, have 1µs"},
		{lock.Config{TTL: time.Second, SafetyMargin: time.Second}, "safety margin: want less than ttl (1s), have 1s"},
		{
			lock.Config{TTL: 10 * time.Second, SafetyMargin: 2 * time.Second, RenewEvery: 4001 * ms},
			"renew every: want at most half of ttl - safety margin (4s), have 4.001s",
		},
		// The safety margin leaves no room for the default renewal.
		{lock.Config{TTL: 9 * time.Second, SafetyMargin: 5 * time.Second}, "renew every: want at most half of ttl - safety margin (2s), have 3s"},
		{lock.Config{HandoffTimeout: ms / 1000}, "handoff timeout: want 1ms to 24h, have 1µs"}, // Redis refuses PX 0
		{lock.Config{HandoffTimeout: -time.Second}, "handoff timeout: want 1ms to 24h, have -1s"},
		{lock.Config{FenceRetention: -time.Second}, "fence retention: want 1ms to 24h, have -1s"},
		{lock.Config{FenceRetention: day + 1}, "fence retention: want 1ms to 24h, have 24h0m0.000000001s"},
	} {
		err := tc.cfg.Validate()
		expect.That(t, (err != nil) == (tc.want != "") && (err == nil || err.Error() == "lock: "+tc.want),
			"%+v:\nwant %q\nhave %v", tc.cfg, tc.want, err)
		expect.That(t, (expect.Err(lock.New(newFake().Store, tc.cfg)) == nil) == (tc.want == ""), "%+v: want New to agree with %v", tc.cfg, err)
	}
}

func TestCheckResource(t *testing.T) {
	t.Parallel()
	const braces = "braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: "
	for _, tc := range []struct{ res, want string }{ // want is "" for a good one
		{"order:536365", ""},
		{"sku:Größe 38 赤", ""},
		{strings.Repeat("x", store.MaxResource), ""},
		{"user:{42}:cart", ""},
		{"{42}", ""},
		{"{a}-{b}", ""},
		{"{a{b}{}}", ""},
		{`{"id":1}`, ""},

		{"", "it is empty"},
		{strings.Repeat("x", store.MaxResource+1), "want at most 512 bytes, have 513"},
		{strings.Repeat("ü", store.MaxResource/2+1), "want at most 512 bytes, have 514"},
		{"order:{1", braces + `"order:{1"`},
		{"order:1}", braces + `"order:1}"`},
		{"}a{", braces + `"}a{"`},
		{"a{}{b}", braces + `"a{}{b}"`},
		{"{a}:siding:fence", `a name with ":siding:", or braces and "siding:", is one of a key beside a lock: "{a}:siding:fence"`},
		{"a:siding:permit:1", `a name with ":siding:", or braces and "siding:", is one of a key beside a lock: "a:siding:permit:1"`},
		{"order:1\n", `it holds a control character: "order:1\n"`},
		{"order:\x00", `it holds a control character: "order:\x00"`},
		{"order:\u0085", `it holds a control character: "order:\u0085"`},
		{"order:\xff", `it is not UTF-8: "order:\xff"`},
	} {
		err := store.CheckResource(tc.res)
		if (err != nil) != (tc.want != "") || err != nil && (!errors.Is(err, lock.ErrResource) || err.Error() != "lock: bad resource name: "+tc.want) {
			t.Errorf("%q:\nwant %q\nhave %v", tc.res, tc.want, err)
		}
	}
}

// TestExponential doubles up to the longest, and leaves out up to a half, by chance.
func TestExponential(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	retry := lock.Exponential(10*ms, 100*ms)
	for n, most := range map[int]time.Duration{
		1: 10 * ms, 2: 20 * ms, 3: 40 * ms, 4: 80 * ms, 5: 100 * ms, 6: 100 * ms, 1000: 100 * ms, math.MaxInt: 100 * ms,
	} {
		seen := make(map[time.Duration]bool)
		for range 200 {
			delay, again := retry(n)
			expect.Need(t, again && delay >= most/2 && delay <= most, "n %d: want %v to %v, have %v, %t", n, most/2, most, delay, again)
			seen[delay] = true
		}
		expect.That(t, len(seen) >= 50, "n %d: want delays by chance, have %d different ones of 200", n, len(seen))
	}
}

// TestOddRetries never give a delay below zero, nor panic.
func TestOddRetries(t *testing.T) {
	t.Parallel()
	const longest = time.Duration(math.MaxInt64)
	for name, retry := range map[string]lock.Retry{
		"first below zero":   lock.Exponential(-time.Second, time.Second),
		"longest below zero": lock.Exponential(time.Second, -time.Second),
		"zero":               lock.Exponential(0, 0),
		"endless":            lock.Exponential(longest, longest),
		"first over longest": lock.Exponential(time.Hour, time.Second),
	} {
		for _, n := range []int{0, 1, 2, 63, 64, math.MaxInt} {
			delay, again := retry(n)
			expect.That(t, again && delay >= 0, "%s: n %d: want another try, have %v, %t", name, n, delay, again)
		}
	}
}
