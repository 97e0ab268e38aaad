package hook_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// asynqCalls are the calls by which asynq moves tasks. Each has its purpose, the script's digest,
// the keys without the queue's prefix, and the arguments after the bar. A hook that changes a call
// depends on all of that. The words mean:
//
//	id         the task's id          now, now+30s   Unix times in seconds
//	task       the task, encoded      ns             a Unix time in nanoseconds
//	<day>      the day, in UTC        ttl            seconds of uniqueness
//	max        the largest int64
//
// The last but one argument of retry says whether it is a failure.
const asynqCalls = `
enqueue         98d28b42650870a743450ffda9791e9e19c6991b  t:id pending | task id ns
enqueue-unique  297b3f9abfd963a3316434ef9d88fc5bf8a7ddc3  unique t:id pending | id ttl task ns
schedule        8ce6b38a99b73194585c251eb3c2a89559f37a87  t:id scheduled | task now+1h id
schedule-unique e9b8aa859a976a1fce09eaf723b4fccd02ba799e  unique t:id scheduled | id ttl now+1h task
forward         522b1a6ae66fe79ea2f24a9af58798ab71879035  scheduled pending | now t: ns g:
forward         522b1a6ae66fe79ea2f24a9af58798ab71879035  retry pending | now t: ns g:
dequeue         a8153319360adc71cdc370107f8ab9786f204765  pending paused active lease | now+30s t:
done            1241eaa1c73409baaf1fea0c08d203a4911bda15  active lease t:id processed:<day> processed | id now+90d max
done-unique     a2631c71357a54b4c3e7450b1757e7f3f49d6c81  active lease t:id processed:<day> processed unique | id now+90d max
complete        117dca952700588e559c7ace20b925096d587974  active lease completed t:id processed:<day> processed | id now+90d now+1h task max
complete-unique ce6833ccce362a8c0ee53beee413341daf52e39c  active lease completed t:id processed:<day> processed unique | id now+90d now+1h task max
requeue         f34cbfd11d1fc8019af55b50c447fc68eb8b29e5  active lease pending t:id | id
retry           65fa409c88198a681c53e0892d8276eca0145694  t:id active lease retry processed:<day> failed:<day> processed failed | id task now+1h now+90d true max
retry           65fa409c88198a681c53e0892d8276eca0145694  t:id active lease retry processed:<day> failed:<day> processed failed | id task now+1h now+90d false max
archive         9c3b1eb9947ce2ee5304ac013a0a365ec364fd2d  t:id active lease archived processed:<day> failed:<day> processed failed t: | id task now now-90d 10000 now+90d max
find-expired     16988a462595f6ee317be300951533b004f27f5c  lease | now-30s t:
`

// TestAsynqCalls has asynq do each of its moves and compares the calls.
func TestAsynqCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn, sent := b.connect()
	client := asynq.NewClientFromRedisClient(conn)
	enqueue := func(kind string, opts ...asynq.Option) string {
		t.Helper()
		opts = append(opts, asynq.Queue(b.queue), asynq.TaskID("id:"+kind))
		info, err := client.EnqueueContext(t.Context(), asynq.NewTask(kind, nil), opts...)
		if err != nil {
			t.Fatalf("enqueue %s: %v", kind, err)
		}
		return info.ID
	}
	gone := []string{
		enqueue("done"),
		enqueue("done unique", asynq.Unique(time.Hour)),
	}
	completed := []string{
		enqueue("complete", asynq.Retention(time.Hour)),
		enqueue("complete unique", asynq.Retention(time.Hour), asynq.Unique(time.Hour)),
	}
	retried := []string{enqueue("fail"), enqueue("busy")}
	archived := enqueue("archive", asynq.MaxRetry(0))
	requeued := enqueue("hang")
	enqueue("schedule", asynq.ProcessIn(time.Hour))
	enqueue("schedule unique", asynq.ProcessIn(time.Hour), asynq.Unique(time.Hour))

	cfg := asynq.Config{IsFailure: notBusy, RetryDelayFunc: retryAfter(time.Hour)}
	srv := b.serve(cfg, func(_ context.Context, task *asynq.Task) error {
		switch task.Type() {
		case "fail", "archive":
			return errors.New("its own failure")
		case "busy":
			return errBusy
		case "hang":
			<-t.Context().Done() // until the shutdown has requeued it, and beyond
		}
		return nil
	})
	for _, id := range gone {
		b.awaitGone(id)
	}
	for _, id := range completed {
		b.await(id, asynq.TaskStateCompleted)
	}
	for _, id := range retried {
		b.await(id, asynq.TaskStateRetry)
	}
	b.await(archived, asynq.TaskStateArchived)
	b.await(requeued, asynq.TaskStateActive)
	poll.Eventually(t, "a look at the delayed sets", func() bool {
		return len(srv.calls(func(c scriptCall) bool { return c.is("retry", "pending") })) > 0
	})
	srv.stop()
	b.await(requeued, asynq.TaskStatePending)

	var have []string
	for _, tap := range []*tap{sent, srv.tap} {
		for _, c := range tap.calls(b.moves) {
			have = append(have, b.describe(c))
		}
	}
	var want []string
	for line := range strings.Lines(strings.TrimSpace(asynqCalls)) {
		want = append(want, strings.Join(strings.Fields(line), " "))
	}
	for _, line := range want {
		if !slices.Contains(have, line) {
			t.Errorf("want, but asynq does not send: %s", line)
		}
	}
	for _, line := range slices.Compact(slices.Sorted(slices.Values(have))) {
		if !slices.Contains(want, line) {
			t.Errorf("not wanted, but asynq sends: %s", line)
		}
	}
}

// moves reports whether a call belongs to the queue and is no housekeeping.
func (b *bench) moves(c scriptCall) bool {
	return strings.HasPrefix(c.keys[0], b.key("")) && !c.is("aggregation_sets") && !c.is("completed")
}

// describe writes a call down in the way of asynqCalls.
func (b *bench) describe(c scriptCall) string {
	words := []string{c.sha}
	for _, key := range c.keys {
		words = append(words, b.describeKey(key))
	}
	words = append(words, "|")
	for _, arg := range c.argv {
		words = append(words, b.describeArg(arg))
	}
	line := strings.Join(words, " ")
	for known := range strings.Lines(asynqCalls) {
		if fields := strings.Fields(known); len(fields) > 1 && fields[1] == c.sha {
			return fields[0] + " " + line
		}
	}
	return "unknown " + line
}

// describeKey cuts off the queue's prefix and names what differs from call to call.
func (b *bench) describeKey(key string) string {
	key = strings.TrimPrefix(key, b.key(""))
	if start := strings.LastIndexByte(key, ':') + 1; start > 0 {
		if _, err := time.Parse(time.DateOnly, key[start:]); err == nil {
			key = key[:start] + "<day>"
		}
	}
	if strings.HasPrefix(key, "unique:") {
		return "unique"
	}
	if strings.HasPrefix(key, "t:id:") {
		return "t:id"
	}
	return key
}

// describeArg names what differs from call to call.
func (b *bench) describeArg(arg any) string {
	switch v := arg.(type) {
	case []byte:
		return "task"
	case string:
		if strings.HasPrefix(v, "id:") {
			return "id"
		}
		return b.describeKey(v)
	case int64:
		return describeInt(v)
	case int:
		if v > 3500 && v <= 7200 { // of one or two hours, some seconds may be gone
			return "ttl"
		}
	}
	return fmt.Sprint(arg)
}

func describeInt(v int64) string {
	const day = 24 * time.Hour
	if v == math.MaxInt64 {
		return "max"
	}
	if v > math.MaxInt32*int64(time.Millisecond) {
		return "ns"
	}
	from := time.Since(time.Unix(v, 0))
	for _, known := range []struct {
		name   string
		offset time.Duration
		within time.Duration // 90 days are counted by the calendar, so an hour more or less
	}{
		{"now", 0, patience / 2},
		{"now+30s", 30 * time.Second, patience / 2},
		{"now-30s", -30 * time.Second, patience / 2},
		{"now+1h", time.Hour, time.Minute},
		{"now+90d", 90 * day, 2 * time.Hour},
		{"now-90d", -90 * day, 2 * time.Hour},
	} {
		if (from + known.offset).Abs() < known.within {
			return known.name
		}
	}
	return fmt.Sprint(v)
}

// A hook must know a script by either name: asynq sends its digest, and its
// text when Redis does not know it.
func TestAsynqSendsTheTextOfAScriptAfterItsDigest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rdb = redistest.Start(t).Client(t) // one that knows no script yet
	conn, sent := b.connect()
	client := asynq.NewClientFromRedisClient(conn)
	for range 2 {
		if _, err := client.EnqueueContext(t.Context(), asynq.NewTask("fact", nil), asynq.Queue(b.queue)); err != nil {
			t.Fatal(err)
		}
	}
	var have, digests []string
	for _, c := range sent.record {
		have, digests = append(have, c.command), append(digests, c.sha)
	}
	if diff := cmp.Diff([]string{"evalsha", "eval", "evalsha"}, have); diff != "" {
		t.Errorf("commands (-want +have):\n%s", diff)
	}
	if len(slices.Compact(digests)) != 1 {
		t.Errorf("want the same script each time, have %q", digests)
	}
}
