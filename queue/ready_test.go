package queue_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/queue"
)

// wantReady waits until the server is ready, or not for a reason with this text in it.
func wantReady(t *testing.T, s *queue.Server, reason string) {
	t.Helper()
	poll.Eventually(t, "ready, or not: "+reason, func() bool {
		err := s.Ready(t.Context())
		return reason == "" && err == nil || reason != "" && err != nil && strings.Contains(err.Error(), reason)
	})
}

func TestReady(t *testing.T) {
	t.Parallel()
	const noLocks = "no right to locks"
	for name, tt := range map[string]struct {
		spoil, mend []any // commands
		want        string
	}{
		"replica":        {[]any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}, "redis refuses: "},
		"full":           {[]any{"config", "set", "maxmemory", "1"}, []any{"config", "set", "maxmemory", "0"}, "OOM"},
		"too few copies": {[]any{"config", "set", "min-replicas-to-write", "1"}, []any{"config", "set", "min-replicas-to-write", "0"}, "NOREPLICAS"},
		"no right to a key": {
			[]any{"acl", "setuser", "default", "resetkeys", "~lock:*", "~{lock:*", "~siding:*"},
			[]any{"acl", "setuser", "default", "~*"},
			"redis refuses: ",
		},
		"no right to a command": {[]any{"acl", "setuser", "default", "-rpoplpush"}, []any{"acl", "setuser", "default", "+rpoplpush"}, "redis refuses: "},
		noLocks:                 {[]any{"acl", "setuser", "default", "resetkeys", "~asynq:*", "~siding:*"}, []any{"acl", "setuser", "default", "~*"}, "no lock can be taken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupAlone(t)
			s := b.serve(t, queue.ServerConfig{}, func(context.Context, job) error { return nil })
			wantReady(t, s, "")
			b.do(t, tt.spoil...)
			wantReady(t, s, tt.want)
			next := b.newServer(t, queue.ServerConfig{Handler: asynq.NotFoundHandler()})
			// One that could take tasks starts; they wait for the locks.
			if err := next.Start(t.Context()); name != noLocks && (err == nil || !strings.Contains(err.Error(), tt.want)) || name == noLocks && err != nil {
				t.Errorf("start: want %q, have %v", tt.want, err)
			}
			shutdown(t, next)
			b.do(t, tt.mend...)
			wantReady(t, s, "")
		})
	}
}

// do sends Redis a command.
func (b *bundle) do(t *testing.T, args ...any) {
	t.Helper()
	if err := b.rdb.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// To ask whether tasks can be taken takes none, and leaves nothing but a fence behind.
func TestReadyLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]func(*testing.T) *bundle{
		"one server": func(t *testing.T) *bundle {
			t.Helper()
			b, _ := setupAlone(t)
			return b
		},
		"cluster": setupCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id := b.enqueue(t, b.job(1))
			before := b.rdb.Keys(t.Context(), "*").Val()
			s := b.newServer(t, queue.ServerConfig{Shards: map[string]int{b.queue: 2}})
			t.Cleanup(func() { shutdown(t, s) })
			for range 3 {
				must(t, s.Ready(t.Context()))
			}
			for _, key := range b.rdb.Keys(t.Context(), "*").Val() {
				if !slices.Contains(before, key) && !strings.HasSuffix(key, ":fence") {
					t.Errorf("want no new key, have %s", key)
				}
			}
			if have := b.stats(t).Pending; have != 1 {
				t.Errorf("want task %s pending, have %d tasks", id, have)
			}
		})
	}
}
