package main

import (
	"context"
	"net/url"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/delay"
	"github.com/sidingq/siding/bench/internal/system"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// serve starts the server that keeps the tasks.
func (t *trial) serve(ctx context.Context) error {
	if t.Needs != contest.Postgres {
		s, err := redistest.Run(ctx, "--appendonly", "yes", "--appendfsync", "everysec")
		if err != nil {
			return err
		}
		t.server, t.near, t.quit = s.Server, s.Addr, syscall.SIGTERM
		t.line = delay.Line{Network: "tcp", Server: s.Addr}
		return nil
	}
	s, err := pgtest.Run(ctx)
	if err != nil {
		return err
	}
	t.server, t.quit = s.Server, syscall.SIGINT // which does not wait for its clients
	if t.near, err = s.CreateDatabase(ctx); err != nil {
		return err
	}
	config, err := pgx.ParseConfig(t.near)
	if err != nil {
		return err
	}
	t.line.Network, t.line.Server = pgconn.NetworkAddress(config.Host, config.Port)
	return system.RiverTables(ctx, t.near)
}

// behind returns the server's address for a worker behind a proxy.
func (t *trial) behind(proxy string) (string, error) {
	if t.Needs != contest.Postgres {
		return proxy, nil
	}
	u, err := url.Parse(t.near)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Del("host")
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = proxy, query.Encode()
	return u.String(), nil
}
