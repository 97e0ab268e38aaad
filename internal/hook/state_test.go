package hook_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// A state is all that Redis holds of one queue.
type state struct {
	strings map[string]string // what follows the queue's prefix -> value
	lists   map[string][]string
	scores  map[string]map[string]int64
	hashes  map[string]map[string]string
	expires map[string]bool
}

func (f *fleet) prefix() string { return "asynq:{" + f.queue + "}:" }

// read returns the state of f's queue.
func (f *fleet) read(t *testing.T) *state {
	t.Helper()
	ctx := t.Context()
	keys := f.keys(t)
	pipe := f.rdb.Pipeline()
	types, ttls := map[string]*redis.StatusCmd{}, map[string]*redis.DurationCmd{}
	for _, key := range keys {
		types[key], ttls[key] = pipe.Type(ctx, key), pipe.PTTL(ctx, key)
	}
	execute(t, pipe)
	s := &state{
		strings: map[string]string{}, lists: map[string][]string{}, scores: map[string]map[string]int64{},
		hashes: map[string]map[string]string{}, expires: map[string]bool{},
	}
	values := map[string]redis.Cmder{}
	for _, key := range keys {
		switch types[key].Val() {
		case "string":
			values[key] = pipe.Get(ctx, key)
		case "list":
			values[key] = pipe.LRange(ctx, key, 0, -1)
		case "zset":
			values[key] = pipe.ZRangeWithScores(ctx, key, 0, -1)
		case "hash":
			values[key] = pipe.HGetAll(ctx, key)
		default:
			t.Fatalf("%s: have a key of type %s", key, types[key].Val())
		}
	}
	execute(t, pipe)
	for key, cmd := range values {
		name := strings.TrimPrefix(key, f.prefix())
		s.expires[name] = ttls[key].Val() >= 0
		switch cmd := cmd.(type) {
		case *redis.StringCmd:
			s.strings[name] = cmd.Val()
		case *redis.StringSliceCmd:
			s.lists[name] = cmd.Val()
		case *redis.ZSliceCmd:
			s.scores[name] = map[string]int64{}
			for _, z := range cmd.Val() {
				s.scores[name][fmt.Sprint(z.Member)] = int64(z.Score)
			}
		case *redis.MapStringStringCmd:
			s.hashes[name] = cmd.Val()
		}
	}
	return s
}

// keys returns all keys of f's queue, whoever made them, except its notify list and the list of its
// contended locks. No state of a task is in those two.
func (f *fleet) keys(t *testing.T) []string {
	t.Helper()
	match := "*{" + f.queue + "}*"
	scan := func(ctx context.Context, rdb *redis.Client) (keys []string, err error) {
		for it := rdb.Scan(ctx, 0, match, 1000).Iterator(); it.Next(ctx); {
			keys = append(keys, it.Val())
		}
		return keys, nil
	}
	var keys []string
	var err error
	switch rdb := f.rdb.(type) {
	case *redis.Client:
		keys, err = scan(t.Context(), rdb)
	case *redis.ClusterClient:
		// A queue's keys share a slot, so they are all on its master.
		var node *redis.Client
		if node, err = rdb.MasterForKey(t.Context(), f.prefix()); err == nil {
			keys, err = scan(t.Context(), node)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(key string) bool { return strings.HasPrefix(key, "siding:") })
}

func execute(t *testing.T, pipe redis.Pipeliner) {
	t.Helper()
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// pending returns the waiting tasks, the next one first.
func (s *state) pending() []string {
	p := slices.Clone(s.lists["pending"])
	slices.Reverse(p)
	return p
}

// task returns the hash of a task, nil if it has none.
func (s *state) task(id string) map[string]string { return s.hashes["t:"+id] }

// places returns where each id is.
func (s *state) places() map[string][]string {
	in := map[string][]string{}
	for _, set := range []string{"pending", "active"} {
		for _, id := range s.lists[set] {
			in[id] = append(in[id], set)
		}
	}
	for _, set := range []string{"scheduled", "retry", "archived", "completed"} {
		for id := range s.scores[set] {
			in[id] = append(in[id], set)
		}
	}
	return in
}

// Fields of a task's hash: asynq's own, and ours.
var (
	theirFields = []string{"msg", "state", "pending_since", "unique_key", "result"}
	ourFields   = []string{"siding_attempt", "siding_ticket", "siding_woken", "siding_lock", "siding_parked", "siding_crashes", "siding_started", "siding_came"}
)

// problems returns what must not be, whatever has happened to the queue.
func (s *state) problems() (found []string) {
	bad := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	in := s.places()
	for id, sets := range in {
		task := s.task(id)
		switch {
		case len(sets) != 1:
			bad("%s: want it in one place, have %v", id, sets)
		case task == nil:
			bad("%s: in %s without a hash", id, sets[0])
		case task["state"] != sets[0]:
			bad("%s: in %s with state %q", id, sets[0], task["state"])
		case task["msg"] == "":
			bad("%s: without a message", id)
		}
		if since, has := task["pending_since"]; has && (task["state"] == "active" || task["state"] == "retry") {
			bad("%s: %s, and pending since %s", id, task["state"], since)
		}
	}
	for name, task := range s.hashes {
		id, ok := strings.CutPrefix(name, "t:")
		if !ok || len(in[id]) == 0 {
			bad("%s: a hash without a place", name)
		}
		if s.expires[name] {
			bad("%s: a task that expires", name)
		}
		if task["state"] == "retry" && task["siding_ticket"] != "" && task["siding_attempt"]+task["siding_came"] != "" {
			bad("%s: parked, and names an attempt that is over", name)
		}
		for field := range task {
			if !slices.Contains(theirFields, field) && !slices.Contains(ourFields, field) {
				bad("%s: an unknown field %s", name, field)
			}
		}
	}
	for _, id := range s.lists["active"] {
		if _, ok := s.scores["lease"][id]; !ok {
			bad("%s: active without a lease", id)
		}
	}
	for id := range s.scores["lease"] {
		if !slices.Contains(s.lists["active"], id) {
			bad("%s: a lease, and not active", id)
		}
	}
	return append(found, s.strangers()...)
}

// strangers returns the keys that asynq does not know, or that stay for ever
// where asynq's expire.
func (s *state) strangers() (found []string) {
	known := []string{"pending", "active", "lease", "scheduled", "retry", "archived", "completed", "paused", "processed", "failed"}
	for name := range s.expires {
		kind, rest, _ := strings.Cut(name, ":")
		switch {
		case slices.Contains(known, name), kind == "t":
		case (kind == "unique" || kind == "processed" || kind == "failed") && rest != "":
			if !s.expires[name] {
				found = append(found, name+": without expiry")
			}
		default:
			found = append(found, name+": a key of nobody's")
		}
	}
	return found
}

// check fails the test if the queue is not sound, or asynq's Inspector sees it
// otherwise than it is. It returns the state.
func (f *fleet) check(t *testing.T) *state {
	t.Helper()
	s := f.read(t)
	for _, p := range s.problems() {
		t.Error(p)
	}
	f.checkInspector(t, s)
	return s
}

// wantIn fails the test unless the queue is sound, and the task is in this set of asynq's alone.
func (f *fleet) wantIn(t *testing.T, id, set string) {
	t.Helper()
	if have := f.check(t).places()[id]; !slices.Equal(have, []string{set}) {
		t.Errorf("want %s in %s alone, have it in %v", id, set, have)
	}
}

// wantEmpty fails the test unless the queue is sound, and has no task.
func (f *fleet) wantEmpty(t *testing.T) {
	t.Helper()
	if have := f.check(t).places(); len(have) != 0 {
		t.Errorf("want no task left, have them in %v", have)
	}
}

func (f *fleet) checkInspector(t *testing.T, s *state) {
	t.Helper()
	all := asynq.PageSize(10_000)
	listed := map[string]func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
		"pending": f.inspector.ListPendingTasks, "active": f.inspector.ListActiveTasks,
		"scheduled": f.inspector.ListScheduledTasks, "retry": f.inspector.ListRetryTasks,
		"archived": f.inspector.ListArchivedTasks, "completed": f.inspector.ListCompletedTasks,
	}
	sizes := map[string]int{}
	for set, list := range listed {
		tasks, err := list(f.queue, all)
		if err != nil {
			t.Fatalf("list %s: %v", set, err)
		}
		sizes[set] = len(tasks)
		var have []string
		for _, task := range tasks {
			have = append(have, task.ID)
			if task.State.String() != set {
				t.Errorf("%s: want it %s in its list, have %v", task.ID, set, task.State)
			}
			f.checkTask(t, s, set, task.ID)
		}
		want := s.pending()
		if set == "active" {
			want = slices.Clone(s.lists["active"])
		} else if set != "pending" {
			want = slices.Collect(maps.Keys(s.scores[set]))
		}
		if set != "pending" { // whose order matters
			slices.Sort(want)
			slices.Sort(have)
		}
		if diff := cmp.Diff(want, have); diff != "" && len(want)+len(have) > 0 {
			t.Errorf("%s in Redis and in the Inspector (-redis +inspector):\n%s", set, diff)
		}
	}
	info := f.info(t)
	for set, have := range map[string]int{
		"pending": info.Pending, "active": info.Active, "scheduled": info.Scheduled,
		"retry": info.Retry, "archived": info.Archived, "completed": info.Completed,
	} {
		if want := sizes[set]; have != want {
			t.Errorf("queue info: want %d %s, have %d", want, set, have)
		}
	}
	if want := len(s.hashes); info.Size != want {
		t.Errorf("queue info: want the size %d, the number of tasks, have %d", want, info.Size)
	}
}

// checkTask compares one task with what the Inspector says of it.
func (f *fleet) checkTask(t *testing.T, s *state, set, id string) {
	t.Helper()
	info := f.task(t, id)
	if info.ID != id || info.State.String() != set {
		t.Errorf("%s: want it %s, have %s %v", id, set, info.ID, info.State)
	}
	if set == "retry" || set == "scheduled" {
		if want := s.scores[set][id]; info.NextProcessAt.Unix() != want {
			t.Errorf("%s: want it next at %d, have %d", id, want, info.NextProcessAt.Unix())
		}
	}
}

// task returns what the Inspector says of a task.
func (f *fleet) task(t *testing.T, id string) *asynq.TaskInfo {
	t.Helper()
	info, err := f.inspector.GetTaskInfo(f.queue, id)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	return info
}

// info returns what the Inspector says of the queue.
func (f *fleet) info(t *testing.T) *asynq.QueueInfo {
	t.Helper()
	info, err := f.inspector.GetQueueInfo(f.queue)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
