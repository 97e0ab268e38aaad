package taskredis

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// serverInfos have each field, and numbers at their ends. With at most one queue asynq's encoding is the same each time.
func serverInfos() map[string]ServerInfo {
	return map[string]ServerInfo{
		"empty":    {},
		"all":      {Host: "web-3", PID: 7, ID: "s", Concurrency: 10, Queues: map[string]int{"critical": 6}, Strict: true, Status: "active", Started: time.Unix(1_790_000_000, 123_456_789), Active: 3},
		"largest":  {PID: math.MaxInt32, Concurrency: math.MaxInt32, Queues: map[string]int{"q": math.MaxInt32}, Active: math.MaxInt32},
		"smallest": {PID: math.MinInt32, Concurrency: math.MinInt32, Queues: map[string]int{"q": math.MinInt32}, Active: math.MinInt32},
		"epoch":    {Started: time.Unix(0, 0)},
		"odd":      {Queues: map[string]int{"": 0}},
	}
}

// asynqServer encodes an entry by asynq's own code.
func asynqServer(tb testing.TB, s *ServerInfo) []byte {
	tb.Helper()
	p := asynqProto(tb, "asynq.ServerInfo", map[protoreflect.Name]any{
		"host": s.Host, "pid": s.PID, "server_id": s.ID, "concurrency": s.Concurrency, "queues": s.Queues, "strict_priority": s.Strict,
		"status": s.Status, "start_time": s.Started, "active_worker_count": s.Active,
	})
	return expect.Value(proto.Marshal(p.Interface()))(tb)
}

func TestServerEntryIsAsynqs(t *testing.T) {
	t.Parallel()
	for name, s := range serverInfos() {
		have, want := s.encode(), asynqServer(t, &s)
		expect.That(t, bytes.Equal(have, want), "%s: asynq encodes\n%x, we\n%x", name, want, have)
		back, err := decodeServer(have)
		if err != nil || !back.Started.Equal(s.Started) {
			t.Errorf("%s: want it back, have %+v, %v", name, back, err)
			continue
		}
		back.Started = s.Started
		if s.Queues == nil {
			s.Queues = map[string]int{}
		}
		expect.That(t, reflect.DeepEqual(*back, s), "%s: want %+v, have %+v", name, s, *back)
	}
}

// agreeOnServer checks that we read an entry as asynq does.
func agreeOnServer(tb testing.TB, encoded []byte) {
	tb.Helper()
	theirs := asynqType(tb, "asynq.ServerInfo").New()
	wantErr := proto.Unmarshal(encoded, theirs.Interface())
	s, err := decodeServer(encoded)
	if wantErr == nil && err != nil && strings.Contains(err.Error(), "field 7009") {
		return // a text that asynq does not know
	}
	expect.Need(tb, (err != nil) == (wantErr != nil), "%x: asynq says %v, we %v", encoded, wantErr, err)
	if err != nil {
		return
	}
	get := func(name protoreflect.Name) protoreflect.Value {
		return theirs.Get(theirs.Descriptor().Fields().ByName(name))
	}
	want := ServerInfo{
		Host: get("host").String(), PID: int(get("pid").Int()), ID: get("server_id").String(), Concurrency: int(get("concurrency").Int()),
		Queues: map[string]int{}, Strict: get("strict_priority").Bool(), Status: get("status").String(), Active: int(get("active_worker_count").Int()),
		Versions: s.Versions, Guarded: s.Guarded, Protocol: s.Protocol, Terms: s.Terms,
	}
	for name, priority := range get("queues").Map().Range {
		want.Queues[name.String()] = int(priority.Int())
	}
	if started, ok := get("start_time").Message().Interface().(*timestamppb.Timestamp); ok {
		want.Started = started.AsTime()
	}
	expect.Need(tb, reflect.DeepEqual(*s, want), "%x:\nasynq has %+v\nwe have   %+v", encoded, want, *s)
}

func FuzzDecodeServer(f *testing.F) {
	for _, s := range serverInfos() {
		f.Add(s.encode())
	}
	for _, encoded := range encodings() {
		f.Add(encoded)
	}
	n := func(n protowire.Number) protowire.Number { return n }
	f.Add(made(n(8), string(made(n(1), uint64(5), n(9), "x")), n(8), string(made(n(2), uint64(7)))))
	f.Add(made(n(8), "\x08"))
	f.Add(made(n(5), string(made(n(1), "q", n(2), uint64(3), n(2), "x", n(1), uint64(1)))))
	f.Add(made(n(5), string(made(n(1), "\xff"))))
	f.Fuzz(func(t *testing.T, encoded []byte) { agreeOnServer(t, encoded) })
}

// ours is the entry of a server of ours.
func ours(queue string) *ServerInfo {
	return &ServerInfo{
		Host: "web-3", PID: 7, ID: "ours " + queue, Concurrency: 10, Queues: map[string]int{queue: 6, queue + ":low": 1}, Strict: true, Status: "active",
		Started: time.Now(), Active: 2, Versions: "siding 2",
	}
}

func workersOf(queue string) []WorkerInfo {
	return []WorkerInfo{
		{ID: "a", Type: "kind", Payload: []byte("p"), Queue: queue, Started: time.Now(), Deadline: time.Now().Add(time.Minute)},
		{ID: "b", Type: "other", Queue: queue + ":low", Started: time.Now(), Deadline: time.Now().Add(time.Hour)},
	}
}

// found returns the server that asynq's Inspector finds, nil for none.
func found(tb testing.TB, rdb *redis.Client, id string) *asynq.ServerInfo {
	tb.Helper()
	servers := expect.Value(asynq.NewInspectorFromRedisClient(rdb).Servers())(tb)
	for _, s := range servers {
		if s.ID == id {
			slices.SortFunc(s.ActiveWorkers, func(a, b *asynq.WorkerInfo) int { return strings.Compare(a.TaskID, b.TaskID) })
			return s
		}
	}
	return nil
}

func TestInspectorReadsOurServers(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		ctx := t.Context()
		s, workers := ours(queue), workersOf(queue)
		expect.OK(t, WriteServer(ctx, rdb, s, workers, 10*time.Second))
		have := found(t, rdb, s.ID)
		expect.Need(t, have != nil && len(have.ActiveWorkers) == 2, "want it with two tasks, have %+v", have)
		expect.That(t, have.ActiveWorkers[0].TaskID == "a" && have.ActiveWorkers[1].Queue == queue+":low", "want tasks a and b, have %+v", have)
		for _, key := range []string{serversKey, workersKey} {
			name := key + ":{web-3:7:" + s.ID + "}"
			ttl := rdb.TTL(ctx, name).Val()
			expect.That(t, ttl >= 5*time.Second && ttl <= 10*time.Second, "%s: want it for 10 s, have it for %v", name, ttl)
			score := rdb.ZScore(ctx, key, name).Val() - float64(time.Now().Unix())
			expect.That(t, score >= 5 && score <= 10, "%s: want it in the set for 10 s, have it for %v s", name, score)
		}

		// A task that has ended is gone with the next writing, and the last one, too.
		for n := range 2 {
			expect.OK(t, WriteServer(ctx, rdb, s, workers[:1-n], 10*time.Second))
			if have := found(t, rdb, s.ID); len(have.ActiveWorkers) != 1-n {
				t.Errorf("want %d tasks, have %+v", 1-n, have.ActiveWorkers)
			}
		}
		expect.OK(t, WriteServer(ctx, rdb, s, workers, 10*time.Second))
		expect.OK(t, ClearServer(ctx, rdb, s))
		if have := found(t, rdb, s.ID); have != nil {
			t.Errorf("want it gone, have %+v", have)
		}
		left := contentsOf(t, rdb, "web-3:7:"+s.ID)
		expect.That(t, len(left) == 0, "want nothing left, have\n%v", left)
		for _, key := range []string{serversKey, workersKey} {
			expect.That(t, !slices.Contains(rdb.ZRange(ctx, key, 0, -1).Val(), key+":{web-3:7:"+s.ID+"}"), "want it gone from %s", key)
		}
	})
}

// While Redis has no memory left, a server goes on to say that it lives, and what it runs: only the sets, which last, take no more.
func TestServerEntryWithoutMemory(test *testing.T) {
	test.Parallel()
	t := newBench(test, redistest.Start(test).Client(test))
	ctx, s := t.Context(), ours("q")
	expect.OK(t, WriteServer(ctx, t.rdb, s, nil, 10*time.Second))
	t.must(t.rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	t.must(t.rdb.ScriptFlush(ctx).Err())
	s.Status = "stopped"
	_ = WriteServer(ctx, t.rdb, s, workersOf("q"), 10*time.Second)
	have := expect.Value(Servers(ctx, t.rdb))(t)
	tasks := t.rdb.HLen(ctx, workersKey+":"+s.name()).Val()
	expect.That(t, len(have) == 1 && have[0].Status == "stopped" && tasks == 2, "want the second entry with two tasks, have %+v, %d", have, tasks)
}

func TestWorkerEntryIsAsynqs(t *testing.T) {
	t.Parallel()
	s := ServerInfo{Host: "web-3", PID: 7, ID: "s"}
	for name, w := range map[string]WorkerInfo{
		"empty": {},
		"all":   {ID: "x", Type: "kind", Payload: bytes.Repeat([]byte{0xff}, 300), Queue: "q", Started: time.Unix(1_790_000_000, 1), Deadline: time.Unix(1_790_000_060, 0)},
	} {
		p := asynqProto(t, "asynq.WorkerInfo", map[protoreflect.Name]any{
			"host": s.Host, "pid": s.PID, "server_id": s.ID, "task_id": w.ID, "task_type": w.Type, "task_payload": w.Payload, "queue": w.Queue,
			"start_time": w.Started, "deadline": w.Deadline,
		})
		want, err := proto.Marshal(p.Interface())
		have := w.encode(&s)
		expect.That(t, err == nil && bytes.Equal(have, want), "%s: asynq encodes\n%x, we\n%x, %v", name, want, have, err)
	}
}

// put writes any entry, as another server would.
func put(tb testing.TB, rdb *redis.Client, s *ServerInfo, entry []byte, end time.Time) {
	tb.Helper()
	key := serversKey + ":" + s.name()
	rdb.ZAdd(tb.Context(), serversKey, redis.Z{Score: float64(end.Unix()), Member: key})
	if entry != nil {
		rdb.Set(tb.Context(), key, entry, time.Minute)
	}
}

func TestServers(t *testing.T) {
	t.Parallel()
	// An Inspector of another test would remove the server whose clock is behind.
	onOwnRedis(t, func(t *bench) {
		rdb, queue := t.rdb, t.queue
		ctx := t.Context()
		soon := time.Now().Add(10 * time.Second)
		add := func(id string, end time.Time, change func(s *ServerInfo)) {
			s := &ServerInfo{Host: "web", PID: 1, ID: id + queue, Queues: map[string]int{queue: 1}, Started: time.Unix(1, 0), Status: "active"}
			change(s)
			put(t, rdb, s, s.encode(), end)
		}
		expect.OK(t, WriteServer(ctx, rdb, ours(queue), nil, 10*time.Second))
		add("asynq's ", soon, func(*ServerInfo) {})
		add("old ", soon, func(s *ServerInfo) { s.Guarded, s.Versions = true, "siding 1" })
		add("old, clock behind ", time.Now().Add(-10*time.Minute), func(s *ServerInfo) { s.Guarded = true })
		put(t, rdb, &ServerInfo{Host: "web", PID: 1, ID: "killed " + queue}, nil, soon)
		put(t, rdb, &ServerInfo{Host: "web", PID: 1, ID: "broken " + queue}, []byte("\xff"), soon)

		ids := func(servers []*ServerInfo, err error) []string {
			expect.Is(t, "servers", err, nil)
			var ids []string
			for _, s := range servers {
				if id, mine := strings.CutSuffix(s.ID, queue); mine {
					ids = append(ids, strings.TrimSpace(id))
				}
			}
			slices.Sort(ids)
			return ids
		}
		all := []string{"asynq's", "old", "old, clock behind", "ours"}
		if have := ids(Servers(ctx, rdb)); !slices.Equal(have, all) {
			t.Errorf("want %q, have %q", all, have)
		}
		servers, err := Servers(ctx, rdb)
		for _, s := range servers {
			want := ours(queue)
			if s.ID != want.ID {
				continue
			}
			want.Guarded, want.Protocol, want.Started = true, Protocol, s.Started
			if !reflect.DeepEqual(s, want) {
				t.Errorf("want %+v, have %+v, %v", *want, *s, err)
			}
			expect.That(t, s.String() == "web-3 (pid 7)", "have %s", s)
		}
	})
}

// No entry is written, and no server seen, without Redis. Whoever asks is told.
func TestServersWithoutRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	for name, err := range map[string]error{
		"write": WriteServer(t.Context(), rdb, ours("q"), nil, time.Second),
		"clear": ClearServer(t.Context(), rdb, ours("q")),
		"list":  expect.Err(Servers(t.Context(), rdb)),
	} {
		expect.Is(t, name, err, syscall.ECONNREFUSED)
	}
}
