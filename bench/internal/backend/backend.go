// Package backend knows the servers that keep the contenders' tasks, near and behind a proxy.
package backend

import (
	"net"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Server is known by the address that contenders are given.
type Server interface {
	Address() string
	// Listens returns where a proxy finds it.
	Listens() (network, addr string, err error)
	// At returns the same server behind a proxy.
	At(proxy string) (Server, error)
}

// Redis returns the server at the address of a Redis.
func Redis(addr string) Server { return redisAt(addr) }

type redisAt string

func (r redisAt) Address() string                   { return string(r) }
func (r redisAt) Listens() (_, _ string, err error) { return "tcp", string(r), nil }
func (redisAt) At(proxy string) (Server, error)     { return redisAt(proxy), nil }

// Postgres returns the server of a PostgreSQL database, by its URL.
func Postgres(url string) Server { return postgresAt(url) }

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

func (p postgresAt) At(proxy string) (Server, error) {
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
