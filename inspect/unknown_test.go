package inspect_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

func TestUnknownTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.serve()
	for _, queue := range []string{"", b.queue, "no such queue"} {
		if e, err := b.inspector.Why(t.Context(), queue, "nobody"); !errors.Is(err, inspect.ErrUnknownTask) || !strings.Contains(err.Error(), "nobody") {
			t.Errorf("%q: want ErrUnknownTask with the id, have %+v, %v", queue, e, err)
		}
	}
	id := b.job(0)
	expect.Eventually(t, "a task that is over to be unknown", func() bool {
		_, err := b.inspector.Why(t.Context(), "", id)
		return errors.Is(err, inspect.ErrUnknownTask)
	})
}

// An id may be in several queues: all are named.
func TestSameIDInTwoQueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.queue+".a", b.queue+".b"
	for _, q := range []string{two, one} {
		b.enqueue(job{b.resource, 1}, queue.Options{Queue: q, TaskID: b.queue})
	}
	e := b.why(b.queue)
	expect.That(t, e.Task.Queue == one && slices.Equal(e.AlsoIn, []string{two}), "want the first, and the second named, have %+v", e)
	e, err := b.inspector.Why(t.Context(), two, b.queue)
	expect.That(t, err == nil && e.Task.Queue == two && e.AlsoIn == nil, "want the second, have %+v, %v", e, err)
}

// JSON has no time after the year 9999, and asynq takes any deadline.
func TestDeadlineInTheFarFuture(t *testing.T) {
	t.Parallel()
	b := setup(t)
	far := time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)
	info, err := asynq.NewClientFromRedisClient(b.rdb).Enqueue(asynq.NewTask("plain", nil), asynq.Queue(b.queue), asynq.Deadline(far), asynq.ProcessAt(far))
	expect.OK(t, err)
	e := b.why(info.ID)
	_, err = json.Marshal(e)
	expect.OK(t, err)
	latest := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	expect.That(t, e.Deadline.Equal(latest) && e.Next.Equal(latest), "want the latest time that JSON has, have %v and %v", e.Deadline, e.Next)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	// Its heartbeats would go on to dial for a second after it is closed.
	spread := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { _ = spread.Close() })
	for name, tt := range map[string]struct {
		rdb  redis.UniversalClient
		cfg  inspect.Config
		want string
	}{
		"no client": {nil, inspect.Config{}, "inspect: redis: want a client, such as one made by queue.Redis, have none"},
		"nil":       {(*redis.Client)(nil), inspect.Config{}, "inspect: redis: want a client, such as one made by queue.Redis, have a nil *redis.Client"},
		"spread":    {spread, inspect.Config{}, "inspect: redis: want a client of one Redis or of a Cluster, have a redis.Ring"},
		"no kind":   {rdb, inspect.Config{Resources: map[string]queue.ResourceFunc{"": func([]byte) (string, error) { return "", nil }}}, `inspect: queue: resources: want the kind of a task, have ""`},
		"nothing":   {rdb, inspect.Config{Resources: map[string]queue.ResourceFunc{"a": nil}}, `inspect: queue: resources: a: want a function, have nil`},
		"braces":    {rdb, inspect.Config{Prefix: "{a}:"}, `inspect: lock: prefix: braces would change the Redis Cluster slot of companion keys, have "{a}:"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := inspect.New(tt.rdb, tt.cfg)
			expect.That(t, err != nil && err.Error() == tt.want, "want %q, have %v", tt.want, err)
		})
	}
}

// A Redis that does not answer is an error, and no empty answer.
func TestNoRedis(t *testing.T) {
	t.Parallel()
	b := setupAlone(t)
	expect.OK(t, b.rdb.Close())
	for name, ask := range b.questions() {
		err := ask(t.Context())
		expect.That(t, err != nil && strings.HasPrefix(err.Error(), "inspect: "), "%s: want an error of inspect, have %v", name, err)
	}
}
