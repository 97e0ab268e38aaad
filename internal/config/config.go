package config

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// Config holds the value of every setting. [Sources.Load] and [Default] make it; the
// zero value is not usable.
type Config struct {
	Redis          Redis
	Queues         map[string]int // weights by name
	Shards         map[string]int // their numbers by queue
	StrictPriority bool
	Concurrency    int
	Notifier       bool
	PollInterval   time.Duration // 0: the default of queue.ServerConfig
	TimerInterval  time.Duration
	Shutdown       Shutdown
	Lock           lock.Config
	Recovery       Recovery
	Ledger         Ledger
	HTTP           HTTP
	Log            Log

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

// Shutdown bounds the end of a worker.
type Shutdown struct {
	// Timeout is how long running tasks may go on.
	Timeout time.Duration
	// HardDeadline is how long after the start of the drain the process ends, whatever still runs.
	HardDeadline time.Duration
}

// Recovery is for tasks that lost their lock or their worker, see [queue.Recovery].
type Recovery struct {
	Crashes   int // 0: each crash costs a retry
	Losses    int // 0: each loss costs a retry
	NoRetries bool
}

// Ledger is the database of the demo shop.
type Ledger struct {
	DSN Secret // it may hold a password
}

// HTTP is for the dashboard and the probes.
type HTTP struct {
	Address      string // host:port; empty: nowhere
	Dashboard    bool
	ReadOnly     bool
	Username     string
	Password     Secret
	PasswordFile string
}

// LoginPassword returns the password that the dashboard asks for, from the file if one
// is named; empty when it asks for none. Its errors name the setting and the file.
func (h HTTP) LoginPassword() (Secret, error) {
	password, err := passwordOf("http.password_file", h.Password, h.PasswordFile)
	return Secret(password), err
}

// Log is for the log.
type Log struct {
	Level  slog.Level
	Format string // "text" or "json"
}

// Place returns the place that the value of a key came from, in the words of errors. It is the
// key if the setting has its default.
func (c Config) Place(key string) string { return cmp.Or(c.places[key], key) }

// Client returns the configuration of a queue client.
func (c Config) Client() queue.ClientConfig { return queue.ClientConfig{Shards: c.Shards} }

// Server returns the configuration of a queue server. Observe gets the events of its tasks.
func (c Config) Server(logger *slog.Logger, observe func(queue.Event)) queue.ServerConfig {
	return queue.ServerConfig{
		Asynq: asynq.Config{
			Queues:                   c.Queues,
			StrictPriority:           c.StrictPriority,
			Concurrency:              c.Concurrency,
			TaskCheckInterval:        c.PollInterval,
			DelayedTaskCheckInterval: c.TimerInterval,
			ShutdownTimeout:          c.Shutdown.Timeout,
		},
		Shards: c.Shards,
		Guard: queue.GuardConfig{
			NoNotifier: !c.Notifier,
			Lock:       c.Lock,
			Recovery:   queue.Recovery{Crashes: cmp.Or(c.Recovery.Crashes, -1), Losses: cmp.Or(c.Recovery.Losses, -1), NoRetries: c.Recovery.NoRetries},
			Observe:    observe,
			Logger:     logger,
		},
	}
}
