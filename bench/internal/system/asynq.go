package system

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/internal/sleep"
)

// An Asynq is how asynq is set up, and how it keeps the tasks of a key apart.
type Asynq struct {
	Servers      int           // that share the workers; 0 for one
	Poll, Timers time.Duration // TaskCheckInterval and DelayedTaskCheckInterval; 0 for asynq's
	Locks        bool          // one for each key, one after the other
	Unique       bool          // asynq.Unique: who enqueues waits until the task of the key before is done
	Named        bool          // asynq.TaskID: a task may be enqueued again after an error
	Delay        time.Duration // of a task whose key is taken
	Patience     time.Duration // between tries while it waits in the worker; 0 to send it back at once
}

// errTaken sends a task back whose key is taken.
var errTaken = errors.New("the key is taken")

const asynqKind = "bench:work"

// asynqTask is the payload of a task.
type asynqTask struct {
	ID   int      `json:"id,omitempty"`
	Keys []string `json:"keys"`
}

type asynqSystem struct {
	Asynq
	Config

	redis   []*redis.Client
	client  *asynq.Client
	locker  *redislock.Client
	servers []*asynq.Server
}

// Open opens a client and one or more servers of asynq.
func (a Asynq) Open(_ context.Context, c Config) (System, error) {
	s := &asynqSystem{Asynq: a, Config: c}
	connect := func() *redis.Client {
		s.redis = append(s.redis, redis.NewClient(&redis.Options{Addr: c.Server, Dialer: c.Dial}))
		return s.redis[len(s.redis)-1]
	}
	s.client = asynq.NewClientFromRedisClient(connect())
	s.locker = redislock.New(connect())
	servers := max(1, a.Servers)
	for range servers {
		s.servers = append(s.servers, asynq.NewServerFromRedisClient(connect(), asynq.Config{
			Concurrency:              c.Workers / servers,
			TaskCheckInterval:        a.Poll,
			DelayedTaskCheckInterval: a.Timers,
			ShutdownTimeout:          c.Drain,
			LogLevel:                 asynq.FatalLevel,
			IsFailure:                func(err error) bool { return err != nil && !errors.Is(err, errTaken) },
			RetryDelayFunc: func(n int, err error, t *asynq.Task) time.Duration {
				if errors.Is(err, errTaken) {
					return a.Delay
				}
				return asynq.DefaultRetryDelayFunc(n, err, t)
			},
		}))
	}
	return s, nil
}

func (s *asynqSystem) Enqueue(ctx context.Context, tasks []workload.Task) error {
	for _, t := range tasks {
		if err := s.enqueue(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (s *asynqSystem) enqueue(ctx context.Context, t workload.Task) error {
	task, options := asynqTask{ID: t.ID, Keys: t.Keys()}, []asynq.Option(nil)
	if s.Named {
		task.ID = 0 // so that the payload is the same for all tasks of a key
		options = append(options, asynq.TaskID(strconv.Itoa(t.ID)))
	}
	if s.Unique {
		options = append(options, asynq.Unique(s.TTL))
	}
	payload, err := json.Marshal(task)
	if err != nil {
		return err
	}
	for {
		_, err := s.client.EnqueueContext(ctx, asynq.NewTask(asynqKind, payload, options...))
		if errors.Is(err, asynq.ErrTaskIDConflict) {
			return nil // an earlier call has enqueued it
		}
		if !errors.Is(err, asynq.ErrDuplicateTask) {
			return err
		}
		if err := sleep.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func (s *asynqSystem) Start(context.Context) error {
	for _, server := range s.servers {
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
	if s.Named {
		id, _ := asynq.GetTaskID(ctx)
		if task.ID, failure = strconv.Atoi(id); failure != nil {
			return failure
		}
	}
	charged, _ := asynq.GetRetryCount(ctx)
	if s.Locks {
		var options *redislock.Options
		if s.Patience > 0 {
			options = &redislock.Options{RetryStrategy: redislock.LinearBackoff(s.Patience)}
		}
		for _, key := range task.Keys {
			held, err := s.locker.Obtain(ctx, "lock:"+key, cmp.Or(s.TTL, 30*time.Second), options)
			if errors.Is(err, redislock.ErrNotObtained) {
				return errTaken
			}
			if err != nil {
				return err
			}
			defer func() {
				if err := held.Release(context.WithoutCancel(ctx)); !errors.Is(err, redislock.ErrLockNotHeld) { // else it has expired, and the work is done
					failure = errors.Join(failure, err)
				}
			}()
		}
	}
	return s.Handle(ctx, task.ID, charged, 0)
}

func (s *asynqSystem) Stop(context.Context) error {
	var all sync.WaitGroup
	for _, server := range s.servers {
		all.Go(server.Shutdown)
	}
	all.Wait()
	return nil
}

func (s *asynqSystem) Left(context.Context) (int, error) { return asynqLeft(s.redis[0]) }

func (s *asynqSystem) Close() error {
	var err error
	for _, client := range s.redis {
		err = errors.Join(err, client.Close())
	}
	return err
}
