package main

import (
	"net"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A backend is a server that keeps tasks, near or behind a proxy, by the address that contenders are given.
type backend interface {
	Address() string
	// Listens returns where a proxy finds it.
	Listens() (network, addr string, err error)
	// At returns the same server behind a proxy.
	At(proxy string) (backend, error)
}

// A redisAt is the address of a Redis.
type redisAt string

func (r redisAt) Address() string                   { return string(r) }
func (r redisAt) Listens() (_, _ string, err error) { return "tcp", string(r), nil }
func (redisAt) At(proxy string) (backend, error)    { return redisAt(proxy), nil }

// A postgresAt is the URL of a PostgreSQL database.
type postgresAt string

func (p postgresAt) Address() string { return string(p) }

func (p postgresAt) Listens() (network, addr string, err error) {
	config, err := pgx.ParseConfig(string(p))
	if err != nil {
		return "", "", err
	}
	network, addr = pgconn.NetworkAddress(config.Host, config.Port)
	return network, addr, nil
}

func (p postgresAt) At(proxy string) (backend, error) {
	u, err := url.Parse(string(p))
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(proxy)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	query.Set("host", host)
	query.Set("port", port)
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return postgresAt(u.String()), nil
}
