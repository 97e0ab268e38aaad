package hook_test

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/hook"
	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// A server whose connection has a hook says so in its entry. asynq reads from the entry what it
// reads of any other. A server that has gone is not listed.
func TestServers(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) (connect func() redis.UniversalClient){
		"one Redis": func(t *testing.T) func() redis.UniversalClient {
			t.Helper()
			s := redistest.Start(t)
			return func() redis.UniversalClient { return s.Client(t) }
		},
		"cluster": func(t *testing.T) func() redis.UniversalClient {
			t.Helper()
			c := redistest.StartCluster(t, 3)
			return func() redis.UniversalClient { return c.Client(t) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect := start(t)
			rdb, hooked := connect(), connect()
			hooked.AddHook(quiet())
			serveNothing(t, connect(), "a")
			stop := serveNothing(t, hooked, "b", "c")
			// A server that was killed: its entry has expired, and nobody has taken it off the list.
			if err := rdb.ZAdd(t.Context(), "asynq:servers", redis.Z{Score: float64(time.Now().Unix()), Member: "asynq:servers:{killed}"}).Err(); err != nil {
				t.Fatal(err)
			}
			list := func() []asynqredis.Server {
				servers, err := asynqredis.Servers(t.Context(), rdb)
				if err != nil {
					t.Fatal(err)
				}
				slices.SortFunc(servers, func(a, b asynqredis.Server) int { return len(a.Queues) - len(b.Queues) })
				return servers
			}
			poll.Eventually(t, "two servers", func() bool { return len(list()) == 2 })

			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			have := list()
			slices.Sort(have[1].Queues)
			var want []asynqredis.Server
			infos, err := asynq.NewInspectorFromRedisClient(rdb).Servers()
			if err != nil {
				t.Fatal(err)
			}
			for _, info := range infos {
				s := asynqredis.Server{Host: info.Host, PID: info.PID, ID: info.ID, Queues: []string{"a"}}
				if info.Queues["b"] == 1 && info.Queues["c"] == 2 {
					s.Queues, s.Guarded, s.Versions = []string{"b", "c"}, true, hook.Versions()
				}
				if s.Host != host || s.PID != os.Getpid() || info.Concurrency != 3 || info.Status != "active" {
					t.Errorf("want asynq to read the entry of this process, have %+v", info)
				}
				want = append(want, s)
			}
			slices.SortFunc(want, func(a, b asynqredis.Server) int { return len(a.Queues) - len(b.Queues) })
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}

			stop()
			if have := list(); len(have) != 1 || have[0].Guarded {
				t.Errorf("want the server without a hook alone, have %v", have)
			}
		})
	}
}

// serveNothing starts one of asynq's servers, and returns what stops it. The queues have the weights
// 1, 2 and so on.
func serveNothing(t *testing.T, client redis.UniversalClient, queues ...string) (stop func()) {
	t.Helper()
	weights := make(map[string]int)
	for i, queue := range queues {
		weights[queue] = i + 1
	}
	server := asynq.NewServerFromRedisClient(client, asynq.Config{Queues: weights, Concurrency: 3, LogLevel: asynq.FatalLevel})
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server.Shutdown
}

// The hook changes the entry of a server and no other call that looks like it.
func TestMarkGuarded(t *testing.T) {
	t.Parallel()
	const server, workers = "asynq:servers:{host:1:id}", "asynq:workers:{host:1:id}"
	entry := []byte("\x0a\x04host")
	marked := protowire.AppendString([]byte("\x0a\x04host\x80\xb6\x03\x01\x8a\xb6\x03"), hook.Versions())
	for name, tt := range map[string]struct{ call, want []any }{
		"written":            {[]any{"evalsha", "sha", 2, server, workers, 10.0, entry}, []any{"evalsha", "sha", 2, server, workers, 10.0, marked}},
		"written, by text":   {[]any{"eval", "text", 2, server, workers, 10.0, entry}, []any{"eval", "text", 2, server, workers, 10.0, marked}},
		"with tasks":         {[]any{"evalsha", "sha", 2, server, workers, 10.0, entry, "task", entry}, []any{"evalsha", "sha", 2, server, workers, 10.0, marked, "task", entry}},
		"cleared":            {[]any{"evalsha", "sha", 2, server, workers}, nil},
		"of two servers":     {[]any{"evalsha", "sha", 2, server, workers + "2", 10.0, entry}, nil},
		"of something else":  {[]any{"evalsha", "sha", 2, "asynq:schedulers:{id}", workers, 10.0, entry}, nil},
		"with more keys":     {[]any{"evalsha", "sha", 3, server, workers, "key", 10.0, entry}, nil},
		"as no encoded text": {[]any{"evalsha", "sha", 2, server, workers, 10.0, 7}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			if want == nil {
				want = slices.Clone(tt.call)
			}
			before := slices.Clone(entry)
			other := quiet() // has met another asynq
			process(t, other, replies(t, redis.Nil), []any{"evalsha", "another", 1, "asynq:{q}:pending"})
			for mismatched, h := range map[bool]*hook.Hook{false: quiet(), true: other} {
				_, sent := process(t, h, replies(t, "OK"), slices.Clone(tt.call))
				if diff := cmp.Diff([][]any{want}, sent); diff != "" || h.Mismatched() != mismatched {
					t.Errorf("another asynq: %t (-want +have):\n%s", mismatched, diff)
				}
			}
			if !slices.Equal(before, entry) {
				t.Errorf("want asynq's own entry left alone, have %q", entry)
			}
		})
	}
}

// The versions are those of the modules that the program is built with.
func TestVersionsOf(t *testing.T) {
	t.Parallel()
	siding, asynq := &debug.Module{Path: "github.com/sidingq/siding", Version: "v1.2.3"}, &debug.Module{Path: "github.com/hibiken/asynq", Version: "v0.26.0"}
	fork := &debug.Module{Path: "github.com/hibiken/asynq", Version: "v0.26.0", Replace: &debug.Module{Path: "github.com/hibiken/asynq", Version: "v0.27.0"}}
	local := &debug.Module{Path: "github.com/sidingq/siding", Version: "v0.0.0", Replace: &debug.Module{Path: "../siding"}}
	folder := &debug.Module{Path: "github.com/sidingq/siding", Version: "v0.0.0", Replace: &debug.Module{Path: "/src/siding", Version: "(devel)"}}
	renamed := &debug.Module{Path: "github.com/hibiken/asynq", Version: "v0.26.0", Replace: &debug.Module{Path: "example.com/asynq", Version: "v0.26.1"}}
	other := debug.Module{Path: "example.com/shop", Version: "(devel)"}
	for name, tt := range map[string]struct {
		build *debug.BuildInfo
		want  string
	}{
		"a user's program": {&debug.BuildInfo{Main: other, Deps: []*debug.Module{asynq, siding}}, "siding v1.2.3, asynq v0.26.0, "},
		"a fork":           {&debug.BuildInfo{Main: other, Deps: []*debug.Module{fork, local}}, "siding v0.0.0, asynq v0.27.0, "},
		"a folder":         {&debug.BuildInfo{Main: other, Deps: []*debug.Module{renamed, folder}}, "siding (devel), asynq v0.26.1, "},
		"Siding's own":     {&debug.BuildInfo{Main: debug.Module{Path: siding.Path, Version: "(devel)"}, Deps: []*debug.Module{asynq}}, "siding (devel), asynq v0.26.0, "},
		"no module":        {&debug.BuildInfo{}, "siding not known, asynq not known, "},
		"nothing known":    {nil, "siding not known, asynq not known, "},
	} {
		if have := hook.VersionsOf(tt.build); have != tt.want+runtime.Version() {
			t.Errorf("%s: want %q, have %q", name, tt.want+runtime.Version(), have)
		}
	}
}
