package config

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// Config holds the value of every setting. [Load] and [Default] make it; the
// zero value is not usable.
type Config struct {
	Redis          Redis
	Queues         map[string]int // weights by name
	Shards         map[string]int // their numbers by queue
	StrictPriority bool
	Concurrency    int
	Doorbell       bool
	PollInterval   time.Duration // 0: what queue.ServerConfig says
	TimerInterval  time.Duration
	Shutdown       Shutdown
	Lock           lock.Config
	Recovery       Recovery
	Ledger         Ledger
	HTTP           HTTP
	Log            Log
}

// Redis says where Redis is and how to be let in.
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
	// HardDeadline is when the process ends whatever still runs.
	HardDeadline time.Duration
}

// Recovery says what becomes of tasks that lost their lock or their worker, see [queue.Recovery].
type Recovery struct {
	Crashes   int // 0: none is spared
	Losses    int // 0: none is spared
	NoRetries bool
}

// Ledger says where the business tasks keep their results.
type Ledger struct {
	DSN Secret // it may hold a password
}

// HTTP says where the dashboard and the probes are served, and to whom.
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

// Log says what is logged, and how.
type Log struct {
	Level  slog.Level
	Format string // "text" or "json"
}

// A Secret is a text that does not show itself when it is printed or logged.
// Convert it to a string to use it.
type Secret string

const hidden = "[hidden]"

// String does not return the text.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString does not return the text.
func (s Secret) GoString() string { return s.String() }

// LogValue does not return the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText does not return the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Default returns the configuration of a program that is told nothing.
func Default() Config {
	var c Config
	for _, s := range Settings() {
		for _, item := range s.split(s.Default) {
			if err := s.set(&c, item); err != nil {
				panic("config: default of " + s.Key + ": " + err.Error()) // the table is wrong
			}
		}
	}
	return c
}

// Client returns the configuration of a queue client.
func (c Config) Client() queue.ClientConfig { return queue.ClientConfig{Shards: c.Shards} }

// Server returns the configuration of a queue server that tells observe what
// happens to its tasks.
func (c Config) Server(logger *slog.Logger, observe func(queue.Event)) queue.ServerConfig {
	return queue.ServerConfig{
		Queues:          c.Queues,
		Shards:          c.Shards,
		StrictPriority:  c.StrictPriority,
		Concurrency:     c.Concurrency,
		NoDoorbell:      !c.Doorbell,
		PollInterval:    c.PollInterval,
		TimerInterval:   c.TimerInterval,
		ShutdownTimeout: c.Shutdown.Timeout,
		Lock:            c.Lock,
		Recovery:        queue.Recovery{Crashes: cmp.Or(c.Recovery.Crashes, -1), Losses: cmp.Or(c.Recovery.Losses, -1), NoRetries: c.Recovery.NoRetries},
		Observe:         observe,
		Logger:          logger,
	}
}
