package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/internal/trace"
	"github.com/sidingq/siding/bench/internal/workload"
)

// lanes is how many servers the contender asynq-lanes has.
const lanes = 4

// An asynqSetting is how asynq is set up, and with what lock.
type asynqSetting struct {
	servers      int
	poll, timers time.Duration // TaskCheckInterval and DelayedTaskCheckInterval; 0 for asynq's
	locks        bool          // one for each key, one after the other
	delay        time.Duration // of a task whose key is taken
	patience     time.Duration // between tries while it waits in the worker; 0 to park it at once
	counts       bool          // the lock of a key may be that of a limit or of a rate, see counter
}

func asynqContenders() []contender {
	const recipe = "lock TTL 30 s, IsFailure false and a fixed RetryDelayFunc for a task whose key is taken"
	plain := []string{"github.com/hibiken/asynq"}
	locked := []string{"github.com/hibiken/asynq", "github.com/bsm/redislock"}
	of := func(s asynqSetting) func(context.Context, course) (outcome, error) { return inProcess(openAsynq(s), 1) }
	return []contender{
		{
			name: "asynq", modules: plain, config: "no lock; TaskCheckInterval 10 ms as Siding's", unsafe: true, pairs: true,
			run: of(asynqSetting{servers: 1, poll: 10 * time.Millisecond}),
		},
		{
			name: "asynq-lanes", modules: plain, config: fmt.Sprintf("the same, %d servers in the process that share the concurrency", lanes), unsafe: true, pairs: true,
			run: of(asynqSetting{servers: lanes, poll: 10 * time.Millisecond}),
		},
		{
			name: "asynq+redislock", modules: locked, pairs: true, config: "asynq with defaults; " + recipe + ": 1 s",
			run: of(asynqSetting{servers: 1, locks: true, delay: time.Second}),
		},
		{
			name: "asynq+redislock-100ms", modules: locked, pairs: true, config: "the same with TaskCheckInterval 50 ms, DelayedTaskCheckInterval 100 ms",
			run: of(asynqSetting{servers: 1, locks: true, delay: time.Second, poll: 50 * time.Millisecond, timers: 100 * time.Millisecond}),
		},
		{
			name: "asynq+redislock-spin", modules: locked, pairs: true, config: "the same with 20 ms for both, delay 20 ms (asynq keeps whole seconds: none)",
			run: of(asynqSetting{servers: 1, locks: true, delay: 20 * time.Millisecond, poll: 20 * time.Millisecond, timers: 20 * time.Millisecond}),
		},
		{
			name: "sleep", modules: locked, pairs: true, config: "asynq, TaskCheckInterval 10 ms; the worker waits for the lock, LinearBackoff(100 ms)",
			run: of(asynqSetting{servers: 1, locks: true, delay: time.Second, poll: 10 * time.Millisecond, patience: 100 * time.Millisecond}),
		},
		{
			name: "asynq+semaphore", modules: plain, limits: true, rates: true, config: "asynq with defaults; a semaphore in a sorted set by expiry, for a rate a count per second; else as asynq+redislock",
			run: of(asynqSetting{servers: 1, locks: true, counts: true, delay: time.Second}),
		},
		{
			name: "asynq+semaphore-spin", modules: plain, limits: true, rates: true, config: "the same set up as asynq+redislock-spin",
			run: of(asynqSetting{servers: 1, locks: true, counts: true, delay: 20 * time.Millisecond, poll: 20 * time.Millisecond, timers: 20 * time.Millisecond}),
		},
	}
}

// errTaken parks a task whose key is taken.
var errTaken = errors.New("the key is taken")

// asynqTask is the payload of a task.
type asynqTask struct {
	ID   int      `json:"id"`
	Keys []string `json:"keys"`
}

const asynqKind = "bench:work"

// An asynqSystem is a client and one or more servers of asynq.
type asynqSystem struct {
	asynqSetting

	rec     *trace.Recorder
	plan    workload.Plan
	redis   []*redis.Client
	client  *asynq.Client
	locker  *redislock.Client
	running []*asynq.Server
}

func openAsynq(setting asynqSetting) opener {
	return func(_ context.Context, c course, rec *trace.Recorder, sent *redisstat.Sent) (system, error) {
		s := &asynqSystem{asynqSetting: setting, rec: rec, plan: c.plan}
		connect := func() *redis.Client {
			client := redis.NewClient(&redis.Options{Addr: c.redis, Dialer: sent.Dial})
			s.redis = append(s.redis, client)
			return client
		}
		s.client = asynq.NewClientFromRedisClient(connect())
		s.locker = redislock.New(connect())
		for range setting.servers {
			s.running = append(s.running, asynq.NewServerFromRedisClient(connect(), asynq.Config{
				Concurrency:              c.plan.Workers / setting.servers,
				TaskCheckInterval:        setting.poll,
				DelayedTaskCheckInterval: setting.timers,
				ShutdownTimeout:          stopTimeout,
				LogLevel:                 asynq.FatalLevel,
				IsFailure:                func(err error) bool { return err != nil && !errors.Is(err, errTaken) },
				RetryDelayFunc: func(n int, err error, t *asynq.Task) time.Duration {
					if errors.Is(err, errTaken) {
						return setting.delay
					}
					return asynq.DefaultRetryDelayFunc(n, err, t)
				},
			}))
		}
		return s, nil
	}
}

func (s *asynqSystem) enqueue(ctx context.Context, tasks []workload.Task) error {
	for _, t := range tasks {
		payload, err := json.Marshal(asynqTask{t.ID, t.Keys()})
		if err != nil {
			return err
		}
		if _, err := s.client.EnqueueContext(ctx, asynq.NewTask(asynqKind, payload)); err != nil {
			return err
		}
	}
	return nil
}

func (s *asynqSystem) start(context.Context) error {
	for _, server := range s.running {
		mux := asynq.NewServeMux()
		mux.HandleFunc(asynqKind, s.handle)
		if err := server.Start(mux); err != nil {
			return err
		}
	}
	return nil
}

func (s *asynqSystem) handle(ctx context.Context, t *asynq.Task) (failure error) {
	var task asynqTask
	if err := json.Unmarshal(t.Payload(), &task); err != nil {
		return err
	}
	if !s.locks {
		return s.rec.Handle(ctx, task.ID)
	}
	if s.counts && s.plan.Holders > 1 {
		return s.counted(ctx, task)
	}
	var options *redislock.Options
	if s.patience > 0 {
		options = &redislock.Options{RetryStrategy: redislock.LinearBackoff(s.patience)}
	}
	for _, key := range task.Keys {
		held, err := s.locker.Obtain(ctx, "lock:"+key, 30*time.Second, options)
		if errors.Is(err, redislock.ErrNotObtained) {
			s.rec.Refuse()
			return errTaken
		}
		if err != nil {
			return err
		}
		defer func() { failure = errors.Join(failure, held.Release(context.WithoutCancel(ctx))) }()
	}
	return s.rec.Handle(ctx, task.ID)
}

// counter lets a task go, if it is not one too many. KEYS: the semaphore, the count of this second.
// ARGV: task, now and when its place expires in ms, how many at once, how many in a second or 0.
var counter = redis.NewScript(`
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
if ARGV[5] ~= '0' then
  if tonumber(redis.call('GET', KEYS[2]) or '0') >= tonumber(ARGV[5]) then return 0 end
  redis.call('INCR', KEYS[2])
  redis.call('EXPIRE', KEYS[2], 2)
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1`)

// counted runs a task of a key that has a limit, and maybe a rate.
func (s *asynqSystem) counted(ctx context.Context, task asynqTask) error {
	now := time.Now()
	keys := []string{"semaphore:{" + task.Keys[0] + "}", fmt.Sprintf("count:{%s}:%d", task.Keys[0], now.Unix())}
	may, err := counter.Run(ctx, s.redis[0], keys, task.ID, now.UnixMilli(), now.Add(30*time.Second).UnixMilli(), s.plan.Holders, s.plan.PerSecond).Bool()
	if err != nil {
		return err
	}
	if !may {
		s.rec.Refuse()
		return errTaken
	}
	err = s.rec.Handle(ctx, task.ID)
	return errors.Join(err, s.redis[0].ZRem(context.WithoutCancel(ctx), keys[0], task.ID).Err())
}

func (s *asynqSystem) stop(context.Context) error {
	var all sync.WaitGroup
	for _, server := range s.running {
		all.Go(server.Shutdown)
	}
	all.Wait()
	return nil
}

func (s *asynqSystem) left(context.Context) (int, error) { return backend.AsynqLeft(s.redis[0]) }

func (s *asynqSystem) close() error {
	var err error
	for _, client := range s.redis {
		err = errors.Join(err, client.Close())
	}
	return err
}
