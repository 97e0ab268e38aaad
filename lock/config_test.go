package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lease"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		cfg  lock.Config
		want lock.Config
	}{
		{
			name: "zero value",
			want: lock.Config{
				Prefix:         "lock:",
				TTL:            15 * time.Second,
				RenewEvery:     5 * time.Second,
				SafetyMargin:   time.Second,
				HandoffTimeout: 5 * time.Second,
				FenceRetention: time.Minute,
			},
		},
		{
			name: "renewal and safety margin follow the ttl",
			cfg:  lock.Config{TTL: 3 * time.Second},
			want: lock.Config{
				Prefix:         "lock:",
				TTL:            3 * time.Second,
				RenewEvery:     time.Second,
				SafetyMargin:   200 * time.Millisecond,
				HandoffTimeout: 5 * time.Second,
				FenceRetention: time.Minute,
			},
		},
		{
			name: "what is set stays",
			cfg: lock.Config{
				Prefix: "erp/", TTL: 10 * time.Second, RenewEvery: time.Second, SafetyMargin: 2 * time.Second,
				HandoffTimeout: time.Second, FenceRetention: time.Hour,
			},
			want: lock.Config{
				Prefix: "erp/", TTL: 10 * time.Second, RenewEvery: time.Second, SafetyMargin: 2 * time.Second,
				HandoffTimeout: time.Second, FenceRetention: time.Hour,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			client, err := lease.New(newFake().Store, lease.Config(tc.cfg))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lock.Config(client.Config())); diff != "" {
				t.Errorf("-want +have:\n%s", diff)
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		cfg  lock.Config
		want string // "" for a good one
	}{
		{name: "zero value"},
		{name: "shortest ttl", cfg: lock.Config{TTL: 100 * time.Millisecond}},
		{name: "longest ttl", cfg: lock.Config{TTL: 24 * time.Hour}},
		{name: "two renewals just fit", cfg: lock.Config{TTL: 10 * time.Second, SafetyMargin: 2 * time.Second, RenewEvery: 4 * time.Second}},
		{
			name: "braces in prefix", cfg: lock.Config{Prefix: "{a}:"},
			want: `lock: prefix: braces would change the Redis Cluster slot of companion keys, have "{a}:"`,
		},
		{name: "no prefix", cfg: lock.Config{Prefix: lock.NoPrefix}},
		{
			name: "asynq's prefix", cfg: lock.Config{Prefix: "asynq:x"},
			want: `lock: prefix: want one that no key of Siding's or asynq's own begins with, have "asynq:x"`,
		},
		{
			name: "Siding's prefix", cfg: lock.Config{Prefix: "siding:"},
			want: `lock: prefix: want one that no key of Siding's or asynq's own begins with, have "siding:"`,
		},
		{
			name: "ttl too short", cfg: lock.Config{TTL: 99 * time.Millisecond},
			want: "lock: ttl: want 100ms to 24h, have 99ms",
		},
		{
			name: "negative ttl", cfg: lock.Config{TTL: -time.Second},
			want: "lock: ttl: want 100ms to 24h, have -1s",
		},
		{
			name: "ttl too long", cfg: lock.Config{TTL: 25 * time.Hour},
			want: "lock: ttl: want 100ms to 24h, have 25h0m0s",
		},
		{
			name: "negative renewal", cfg: lock.Config{RenewEvery: -1},
			want: "lock: renew every: want 1ms to 24h, have -1ns",
		},
		{
			name: "renewal that would be a busy loop", cfg: lock.Config{RenewEvery: time.Microsecond},
			want: "lock: renew every: want 1ms to 24h, have 1µs",
		},
		{
			name: "negative safety margin", cfg: lock.Config{SafetyMargin: -1},
			want: "lock: safety margin: want 1ms to 24h, have -1ns",
		},
		{
			// Redis keeps whole milliseconds, so a TTL of 100.9 ms becomes 100. A safety margin
			// below 0.9 ms would not cover the rest.
			name: "safety margin below the resolution", cfg: lock.Config{TTL: 100900 * time.Microsecond, SafetyMargin: time.Microsecond},
			want: "lock: safety margin: want 1ms to 24h, have 1µs",
		},
		{
			name: "safety margin as long as ttl", cfg: lock.Config{TTL: time.Second, SafetyMargin: time.Second},
			want: "lock: safety margin: want less than ttl (1s), have 1s",
		},
		{
			name: "no second renewal", cfg: lock.Config{TTL: 10 * time.Second, SafetyMargin: 2 * time.Second, RenewEvery: 4001 * time.Millisecond},
			want: "lock: renew every: want at most half of ttl - safety margin (4s), have 4.001s",
		},
		{
			name: "safety margin leaves no room for the default renewal", cfg: lock.Config{TTL: 9 * time.Second, SafetyMargin: 5 * time.Second},
			want: "lock: renew every: want at most half of ttl - safety margin (2s), have 3s",
		},
		{
			// Redis refuses PX 0.
			name: "hand-off timeout below the resolution", cfg: lock.Config{HandoffTimeout: time.Microsecond},
			want: "lock: handoff timeout: want 1ms to 24h, have 1µs",
		},
		{
			name: "negative hand-off timeout", cfg: lock.Config{HandoffTimeout: -time.Second},
			want: "lock: handoff timeout: want 1ms to 24h, have -1s",
		},
		{
			name: "negative fence retention", cfg: lock.Config{FenceRetention: -time.Second},
			want: "lock: fence retention: want 1ms to 24h, have -1s",
		},
		{
			name: "fence retention too long", cfg: lock.Config{FenceRetention: 24*time.Hour + 1},
			want: "lock: fence retention: want 1ms to 24h, have 24h0m0.000000001s",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			have := ""
			if err := tc.cfg.Validate(); err != nil {
				have = err.Error()
			}
			if have != tc.want {
				t.Errorf("\nwant %q\nhave %q", tc.want, have)
			}
			if _, err := lock.New(newFake().Store, tc.cfg); (err != nil) != (tc.want != "") {
				t.Errorf("want New to agree, have %v", err)
			}
		})
	}
}

func TestCheckResource(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		res  string
		want string // "" for a good one
	}{
		{name: "plain", res: "order:536365"},
		{name: "spaces and letters of any script", res: "sku:Größe 38 赤"},
		{name: "longest", res: strings.Repeat("x", store.MaxResource)},
		{name: "empty", res: "", want: "lock: bad resource name: it is empty"},
		{
			name: "too long", res: strings.Repeat("x", store.MaxResource+1),
			want: "lock: bad resource name: want at most 512 bytes, have 513",
		},
		{
			name: "too long in bytes", res: strings.Repeat("ü", store.MaxResource/2+1),
			want: "lock: bad resource name: want at most 512 bytes, have 514",
		},
		{name: "a hash tag", res: "user:{42}:cart"},
		{name: "nothing but a hash tag", res: "{42}"},
		{name: "two pairs", res: "{a}-{b}"},
		{name: "pairs in a pair", res: "{a{b}{}}"},
		{name: "JSON", res: `{"id":1}`},
		{
			name: "opening brace", res: "order:{1",
			want: `lock: bad resource name: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: "order:{1"`,
		},
		{
			name: "closing brace", res: "order:1}",
			want: `lock: bad resource name: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: "order:1}"`,
		},
		{
			name: "the wrong way round", res: "}a{",
			want: `lock: bad resource name: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: "}a{"`,
		},
		{
			name: "an empty first pair", res: "a{}{b}",
			want: `lock: bad resource name: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: "a{}{b}"`,
		},
		{
			name: "a key beside a lock", res: "{a}:siding:fence",
			want: `lock: bad resource name: a name with braces and "siding:" is one of a key beside a lock: "{a}:siding:fence"`,
		},
		{
			name: "newline", res: "order:1\n",
			want: `lock: bad resource name: it holds a control character: "order:1\n"`,
		},
		{
			name: "zero byte", res: "order:\x00",
			want: `lock: bad resource name: it holds a control character: "order:\x00"`,
		},
		{
			name: "control character above ASCII", res: "order:\u0085",
			want: `lock: bad resource name: it holds a control character: "order:\u0085"`,
		},
		{
			name: "not UTF-8", res: "order:\xff",
			want: `lock: bad resource name: it is not UTF-8: "order:\xff"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := store.CheckResource(tc.res)
			have := ""
			if err != nil {
				have = err.Error()
			}
			if have != tc.want || errors.Is(err, lock.ErrResource) != (tc.want != "") {
				t.Errorf("\nwant %q\nhave %q", tc.want, have)
			}
		})
	}
}

// TestBadResourceNeverReachesRedis asks a client that would panic.
func TestBadResourceNeverReachesRedis(t *testing.T) {
	t.Parallel()
	locker, err := lock.New(lock.Redis(struct{ redis.Scripter }{}), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Acquire(t.Context(), "", nil); !errors.Is(err, lock.ErrResource) {
		t.Errorf("acquire: want ErrResource, have %v", err)
	}
	err = locker.Do(t.Context(), "a}b{c", nil, func(_ context.Context) error {
		t.Error("want the work not to run")
		return nil
	})
	if !errors.Is(err, lock.ErrResource) {
		t.Errorf("hold: want ErrResource, have %v", err)
	}
}
