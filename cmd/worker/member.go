package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/runstats"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
)

// A member is one worker of a fleet with all that it has open.
type member struct {
	cfg    config.Config
	log    *slog.Logger
	redis  *redis.UniversalOptions
	stats  *runstats.Collector
	ledger *ledger.Ledger
	server *queue.Server
	pages  *dashboard.Handler

	http   *http.Server // nil until started, or when there is none
	addr   net.Addr     // of http
	web    sync.WaitGroup
	broken chan error   // gets the error of a web server that ended by itself
	phase  atomic.Int32 // one of the phases
}

// The phases of a member, in which only the second is ready.
const (
	starting = iota
	running
	draining
)

// open opens the ledger and makes the servers, and starts nothing. The caller
// drains the member.
func open(ctx context.Context, cfg config.Config, log *slog.Logger, work time.Duration) (*member, error) {
	m := &member{cfg: cfg, log: log, stats: new(runstats.Collector), broken: make(chan error, 1)}
	opts, err := cfg.Redis.Options()
	if err != nil {
		return nil, err
	}
	opts.ClientName = "siding-worker"
	m.redis = opts
	password, err := cfg.HTTP.LoginPassword()
	if err != nil {
		return nil, err
	}
	if m.ledger, err = ledger.Open(ctx, string(cfg.Ledger.DSN)); err != nil {
		return nil, err
	}
	server := cfg.Server(log, m.stats.Observe)
	server.Available = m.ledger.Writable
	if m.server, err = queue.NewServer(opts, server); err != nil {
		return nil, errors.Join(err, m.ledger.Close())
	}
	tasks.Register(m.server, m.ledger, tasks.Config{Work: work})
	web := dashboard.Config{
		ReadOnly: cfg.HTTP.ReadOnly,
		Username: cfg.HTTP.Username,
		Password: string(password),
		// Behind a proxy the host is the proxy's; the password then stands guard.
		AnyHost: password != "" || !dashboard.Loopback(cfg.HTTP.Address),
		Ready:   m.ready,
	}
	if cfg.HTTP.Dashboard {
		web.Redis = opts
	}
	if m.pages, err = dashboard.New(web); err != nil {
		return nil, errors.Join(err, m.server.Shutdown(ctx), m.ledger.Close())
	}
	return m, nil
}

// takeTasks connects to Redis and begins to take tasks.
func (m *member) takeTasks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := m.server.Start(ctx); err != nil {
		return m.cfg.Redis.Failed(err)
	}
	m.phase.Store(running)
	return nil
}

// checkRedis logs what may go wrong with the Redis. It stops nothing: the tasks
// are there and somebody has to work them off.
func (m *member) checkRedis(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := queue.Redis(m.redis)
	defer func() { _ = client.Close() }() // nothing is in flight by then
	found, err := queue.CheckRedis(ctx, client)
	for _, f := range found {
		log := m.log.With("trait", f.Trait)
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
		m.log.InfoContext(ctx, "redis could not be checked", "error", err)
	}
}

// serveHTTP serves on the listener. A nil one serves nothing.
func (m *member) serveHTTP(listener net.Listener) {
	if listener == nil {
		return
	}
	m.http, m.addr = dashboard.NewServer(m.pages, m.log), listener.Addr()
	m.web.Go(func() {
		if err := m.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.broken <- fmt.Errorf("http: %w", err)
		}
	})
}

// url returns the address of the dashboard, or of the probes where there is none.
func (m *member) url() string {
	if m.addr == nil {
		return "off"
	}
	url := "http://" + m.addr.String()
	if m.cfg.HTTP.Dashboard {
		url += dashboard.RootPath + "/"
	}
	return url
}

// ready says why the member takes no tasks, nil when it does.
func (m *member) ready(ctx context.Context) error {
	switch m.phase.Load() {
	case starting:
		return errors.New("starting")
	case draining:
		return errors.New("draining")
	default:
		return m.server.Ready(ctx)
	}
}

// drain ends the tasks and then closes all that is open, in this order: what a
// task needs must outlive it, and the probes tell what goes on. ctx may have
// ended. When the hard deadline passes, drain returns an error at once and leaves
// everything as it is; the process is to end.
func (m *member) drain(ctx context.Context) error {
	m.phase.Store(draining)
	limit := m.cfg.Shutdown.HardDeadline
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := m.server.Shutdown(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("shutdown.hard_deadline: %v have passed: %w", limit, err)
	}
	if m.http != nil {
		// Its visitors have nothing to lose: who lingers is cut off.
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if m.http.Shutdown(ctx) != nil {
			err = errors.Join(err, m.http.Close())
		}
		m.web.Wait()
	}
	return errors.Join(err, m.pages.Close(), m.ledger.Close())
}
