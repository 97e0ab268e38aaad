package config

import (
	"cmp"
	"io"
	"log/slog"
	"time"

	"github.com/sidingq/siding/queue"
)

// Config holds the value of every setting. [Sources.Load] and [Default] make it; the
// zero value is not usable.
type Config struct {
	Redis Redis
	// Queue is what settings say of a queue server, in their own terms: [Config.Server] completes it.
	Queue queue.ServerConfig
	// HardDeadline is how long after SIGTERM, or the start of a drain without one, the process ends, whatever still runs.
	HardDeadline time.Duration
	LedgerDSN    Secret // of the demo shop; it may hold a password
	HTTP         HTTP
	Log          Log

	// places has the place, by key, that a value came from. Keys that have their default are absent.
	places map[string]string
}

// Redis has the addresses of Redis, and how to log in.
type Redis struct {
	Addrs                []string // host:port
	Username             string
	Password             Secret
	PasswordFile         string
	DB                   int
	MasterName           string // not empty: Addrs are Sentinels
	SentinelUsername     string
	SentinelPassword     Secret
	SentinelPasswordFile string
	Cluster              bool // Addrs are nodes of a Redis Cluster
	TLS                  bool
	TLSServerName        string
	TLSCAFile            string
	TLSCertFile          string
	TLSKeyFile           string
	DialTimeout          time.Duration
	Timeout              time.Duration
}

// HTTP is for the dashboard and the probes.
type HTTP struct {
	Address      string // host:port; empty: nowhere
	Dashboard    bool
	Metrics      bool
	ReadOnly     bool
	Username     string
	Password     Secret
	PasswordFile string
}

// Log is for the log.
type Log struct {
	Level  slog.Level
	Format string // "text" or "json"
}

// Logger returns a logger that writes to w.
func (l Log) Logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.Level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// Place returns the place that the value of a key came from, in the words of errors. The place is
// the key if the setting has its default.
func (c Config) Place(key string) string { return cmp.Or(c.places[key], key) }

// LoginPassword returns the password that the dashboard asks for, from the file if one is named;
// empty when it asks for none. Errors name the place of the setting, and the file.
func (c Config) LoginPassword() (Secret, error) {
	password, err := c.password("http.password_file", c.HTTP.Password, c.HTTP.PasswordFile)
	return Secret(password), err
}

// Client returns the configuration of a queue client.
func (c Config) Client() queue.ClientConfig { return queue.ClientConfig{Shards: c.Queue.Shards} }

// Server returns the configuration of a queue server. Observe gets the events of its tasks.
func (c Config) Server(logger *slog.Logger, observe func(queue.Event)) queue.ServerConfig {
	s := c.Queue
	// In a setting 0 means none, and in the library its default.
	s.Recovery.Crashes = cmp.Or(s.Recovery.Crashes, -1)
	s.Recovery.Losses = cmp.Or(s.Recovery.Losses, -1)
	s.Observe, s.Logger = observe, logger
	return s
}
