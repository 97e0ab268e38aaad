package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/tasks/ledger"
)

// patience is how long Redis may take to answer at the start.
const patience = 5 * time.Second

// serve runs a member of the fleet until ctx ends.
func (a *app) serve(ctx context.Context, cfg config.Config) error {
	log := a.logger(cfg.Log)
	if a.flags.embedded {
		own, err := a.embed(&cfg)
		if err != nil {
			return fault{err}
		}
		defer own.Close()
		log.InfoContext(ctx, "embedded redis", "address", own.Addr())
	}
	m, err := open(ctx, cfg, log, a.flags.work)
	if wrong, ok := errors.AsType[*ledger.DSNError](err); ok {
		return fmt.Errorf("%s: %s", a.place("ledger.dsn"), wrong.Problem)
	}
	if err != nil {
		return fault{err}
	}
	listener, err := listen(ctx, cfg.HTTP.Address)
	if err == nil {
		// The probes answer from now on; the member is not ready yet.
		m.serveHTTP(listener)
		err = m.takeTasks(ctx)
	}
	if ctx.Err() != nil {
		err = nil // it was asked to end before it had begun
	} else if err == nil {
		if !a.flags.embedded { // which keeps nothing, and says so in its help
			m.checkRedis(ctx)
		}
		log.InfoContext(ctx, "worker started", "redis", cfg.Redis.Addrs, "queues", cfg.Queues, "concurrency", cfg.Concurrency,
			"ledger", m.ledger.Name(), "http", m.url())
		var cause error
		cause, err = m.wait(ctx)
		log.InfoContext(ctx, "draining", "cause", cause)
	}
	if err := errors.Join(err, m.drain(ctx)); err != nil {
		return fault{err}
	}
	return a.report(ctx, log, m.stats.Summary())
}

// toldEvery is how often a worker tells how many tasks have run, if any have.
const toldEvery = 10 * time.Second

// wait tells of the work until ctx ends, or the web server by itself. It returns why, and the
// error of the latter.
func (m *member) wait(ctx context.Context) (cause, broken error) {
	ticker := time.NewTicker(toldEvery)
	defer ticker.Stop()
	for told := m.stats.Summary(); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx), nil
		case err := <-m.broken:
			return err, err
		case <-ticker.C:
			if s := m.stats.Summary(); s.Tasks != told.Tasks {
				m.log.InfoContext(ctx, "tasks ran", "tasks", s.Tasks-told.Tasks, "succeeded", s.Succeeded-told.Succeeded, "in", toldEvery)
				told = s
			}
		}
	}
}

// embeddedPatience is how long the embedded Redis may take to answer.
const embeddedPatience = 30 * time.Second

// embed starts an in-process Redis and points the settings at it.
func (a *app) embed(cfg *config.Config) (*embedded.Server, error) {
	own, err := embedded.Start(embedded.Config{Port: a.flags.port})
	if err != nil {
		return nil, err
	}
	cfg.Redis = config.Default().Redis
	cfg.Redis.Addrs = []string{own.Addr()}
	// It answers late only while this process itself is starved of CPU. To give
	// up then would lose replies, and with the reply of a dequeue its task, until
	// asynq finds it a minute later.
	cfg.Redis.Timeout = embeddedPatience
	return own, nil
}

// listen binds the address of the web server; an empty one gives none.
func listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // no address, no listener
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("http.address: %s is taken: choose another with --http, or --http off: %w", address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("http.address: %w", err)
	}
	return listener, nil
}
