package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/metrics"
	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/queue"
)

// A Member is one worker of a fleet.
type Member struct {
	// Config has the values of all settings.
	Config config.Config
	// Redis holds the tasks.
	Redis *redis.UniversalOptions
	// Server is the configuration of the server. A program may change it before [Member.Run]. The
	// member logs to its Logger.
	Server queue.ServerConfig
	// Prepare makes what the tasks need, once the HTTP address is free and Redis has answered: a worker that
	// cannot run makes no file. May be nil.
	Prepare func(context.Context) error

	name      string
	embedded  bool
	countdown func() // to the hard deadline, unless a signal has begun it

	stats     Collector
	metrics   *metrics.Metrics      // that are served; nil for none
	client    redis.UniversalClient // for all but the tasks and the dashboard
	server    *queue.Server
	web       *web
	phase     atomic.Int32 // one of the phases
	beside    sync.WaitGroup
	besideErr error
}

// The phases of a member. Only a running one is ready.
const (
	starting = iota
	running
	draining
)

// A refusal is an error of a setting that only the program can judge.
type refusal struct{ error }

// Refuse returns an error that says what is wrong with the setting, after the place that it
// came from.
func (m *Member) Refuse(key, wrong string) error {
	return refusal{fmt.Errorf("%s: %s", m.Config.Place(key), wrong)}
}

// observe counts an event.
func (m *Member) observe(e queue.Event) {
	m.stats.Observe(e)
	if m.metrics != nil {
		m.metrics.Observe(e)
	}
}

// Stats sums up the tasks that have run.
func (m *Member) Stats() Summary { return m.stats.Summary() }

// Run serves HTTP and takes tasks until ctx ends, or beside returns, and then drains. Run calls
// register once, before it takes tasks. If beside is not nil, it runs while tasks are taken, and
// must return when its context ends. The url is that of the dashboard, or "off".
func (m *Member) Run(ctx context.Context, register func(*queue.Server), beside func(ctx context.Context, url string) error) error {
	m.client = queue.Redis(m.Redis)
	defer func() { _ = m.client.Close() }() // nothing is in flight by then
	if err := m.open(ctx, register); err != nil {
		return err
	}
	err := m.work(ctx, beside)
	if err = errors.Join(err, m.drain(ctx)); err != nil {
		return err
	}
	s := m.Stats()
	m.Server.Logger.InfoContext(ctx, "worker ended", "tasks", s.Tasks, "succeeded", s.Succeeded, "contended", s.Contended, "parked", s.Parked, "lost", s.Lost)
	return nil
}

// open makes the servers and registers the handlers, and starts nothing.
func (m *Member) open(ctx context.Context, register func(*queue.Server)) (err error) {
	if m.server, err = queue.NewServer(queue.RedisOpt(*m.Redis), m.Server); err != nil {
		return err
	}
	if register != nil {
		register(m.server)
	}
	if len(m.server.Kinds()) == 0 {
		err = errors.New("no task has a handler: want a function that calls queue.Handle")
	} else {
		m.web, err = newWeb(m)
	}
	if err != nil {
		return errors.Join(err, m.server.Shutdown(ctx))
	}
	return nil
}

// work serves HTTP and takes tasks until ctx ends, or the web server or beside by itself.
func (m *Member) work(ctx context.Context, beside func(context.Context, string) error) error {
	log, redis := m.Server.Logger, m.Config.Redis.Addrs
	if m.embedded {
		log.InfoContext(ctx, "embedded redis", "address", redis[0])
	}
	// The probes answer from now on. The member is not ready yet.
	err := m.web.start(ctx, log)
	if err == nil {
		err = m.reach(ctx)
	}
	if err == nil && m.Prepare != nil {
		err = m.Prepare(ctx)
	}
	if err == nil {
		err = m.takeTasks(ctx)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // asked to end before it had begun
	}
	if err != nil {
		return err
	}
	if !m.embedded { // which keeps nothing, as its help says
		m.checkRedis(ctx)
	}
	log.InfoContext(ctx, "worker started", "redis", redis, "queues", m.Server.Asynq.Queues, "concurrency", m.Server.Asynq.Concurrency, "http", m.web.url())
	ctx, end := context.WithCancelCause(ctx)
	if beside != nil {
		m.beside.Go(func() {
			m.besideErr = beside(ctx, m.web.url())
			end(errors.New("what ran beside the tasks has ended"))
		})
	}
	cause, err := m.wait(ctx)
	end(cause)
	log.InfoContext(ctx, "draining", "cause", cause)
	return err
}

// reach returns an error unless Redis answers.
func (m *Member) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cli.Patience)
	defer cancel()
	if err := m.client.Ping(ctx).Err(); err != nil {
		return m.Config.Redis.Failed(m.name, err)
	}
	return nil
}

// takeTasks connects to Redis and begins to take tasks.
func (m *Member) takeTasks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cli.Patience)
	defer cancel()
	err := m.server.Start(ctx)
	if _, ofRedis := errors.AsType[*redisreply.CallError](err); ofRedis {
		return m.Config.Redis.Failed(m.name, err)
	}
	if errors.Is(err, queue.ErrOtherLocks) {
		return fmt.Errorf("%w (lock.allow_others: true starts it all the same)", err)
	}
	if err != nil {
		return err
	}
	m.phase.Store(running)
	return nil
}

// checkRedis logs what is unsafe about the Redis. The member works all the same, as
// somebody has to run the tasks.
func (m *Member) checkRedis(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cli.Patience)
	defer cancel()
	found, err := queue.CheckRedis(ctx, m.client)
	for _, f := range found {
		log := m.Server.Logger.With("trait", f.Trait)
		if f.Server != "" {
			log = log.With("server", f.Server)
		}
		if f.Advice == "" {
			log.InfoContext(ctx, "a trait of redis could not be checked")
			continue
		}
		log.WarnContext(ctx, "redis is not safe for tasks and locks", "have", f.Have, "advice", f.Advice)
	}
	if err != nil {
		m.Server.Logger.InfoContext(ctx, "redis could not be checked", "error", err)
	}
}

// reportEvery is how often a member logs how many tasks have run, if any have.
const reportEvery = 10 * time.Second

// wait reports on the work until ctx ends, or the web server by itself. The results are the cause,
// and the error of the web server.
func (m *Member) wait(ctx context.Context) (cause, broken error) {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for last := m.Stats(); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx), nil
		case err := <-m.web.broken:
			return err, err
		case <-ticker.C:
			if s := m.Stats(); s.Tasks != last.Tasks {
				m.Server.Logger.InfoContext(ctx, "tasks ran", "tasks", s.Tasks-last.Tasks, "succeeded", s.Succeeded-last.Succeeded, "in_s", reportEvery.Seconds())
				last = s
			}
		}
	}
}

// ready returns why the member takes no tasks, nil when it does.
func (m *Member) ready(ctx context.Context) error {
	switch m.phase.Load() {
	case starting:
		return errors.New("starting")
	case draining:
		return errors.New("draining")
	default:
		return m.server.Ready(ctx)
	}
}

// drain ends the tasks and then the web server. Meanwhile the probes tell that the member drains.
// ctx may have ended.
func (m *Member) drain(ctx context.Context) error {
	m.phase.Store(draining)
	m.countdown()
	ctx = context.WithoutCancel(ctx)
	err := m.server.Shutdown(ctx)
	m.beside.Wait()
	return errors.Join(err, m.besideErr, m.web.stop(ctx))
}
