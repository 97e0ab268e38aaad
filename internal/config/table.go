package config

import (
	"time"

	"github.com/sidingq/siding/queue"
)

// Settings returns the table of all settings, in the order of the file.
func Settings() []Setting {
	return []Setting{
		list("redis.addrs", "127.0.0.1:6379", wantAddress, "redis", asAddress, func(c *Config) *[]string { return &c.Redis.Addrs },
			"Where Redis is: one server, the Sentinels (see master_name), or some nodes of a cluster (see cluster). "+
				"A URL names one server; what it says of the user, the database and TLS counts as if their settings did."),
		text("redis.username", func(c *Config) *string { return &c.Redis.Username },
			"The user to log in as; empty for the default user."),
		secret("redis.password", func(c *Config) *Secret { return &c.Redis.Password }),
		text("redis.password_file", func(c *Config) *string { return &c.Redis.PasswordFile },
			"A file that holds the password alone; SIDING_REDIS_PASSWORD is the other way."),
		number("redis.db", "0", 0, 16383, func(c *Config) *int { return &c.Redis.DB },
			"The number of the database; a cluster has only 0."),
		text("redis.master_name", func(c *Config) *string { return &c.Redis.MasterName },
			"The name of the master that the Sentinels at addrs watch; empty without Sentinel."),
		text("redis.sentinel_username", func(c *Config) *string { return &c.Redis.SentinelUsername },
			"The user to log in to the Sentinels as."),
		secret("redis.sentinel_password", func(c *Config) *Secret { return &c.Redis.SentinelPassword }),
		text("redis.sentinel_password_file", func(c *Config) *string { return &c.Redis.SentinelPasswordFile },
			"A file that holds the Sentinels' password alone; SIDING_REDIS_SENTINEL_PASSWORD is the other way."),
		boolean("redis.cluster", "false", func(c *Config) *bool { return &c.Redis.Cluster },
			"Whether addrs are nodes of a Redis Cluster."),
		boolean("redis.tls", "false", func(c *Config) *bool { return &c.Redis.TLS },
			"Whether to talk TLS with Redis, 1.2 or newer."),
		text("redis.tls_server_name", func(c *Config) *string { return &c.Redis.TLSServerName },
			"The name that the server's certificate must carry; empty for the host in addrs."),
		text("redis.tls_ca_file", func(c *Config) *string { return &c.Redis.TLSCAFile },
			"A PEM file of the authorities to trust; empty for those of the system."),
		text("redis.tls_cert_file", func(c *Config) *string { return &c.Redis.TLSCertFile },
			"A PEM file of our own certificate, for servers that ask for one."),
		text("redis.tls_key_file", func(c *Config) *string { return &c.Redis.TLSKeyFile },
			"A PEM file of that certificate's key."),
		duration("redis.dial_timeout", "2s", 10*time.Millisecond, time.Minute, func(c *Config) *time.Duration { return &c.Redis.DialTimeout },
			"How long connecting may take."),
		duration("redis.timeout", "3s", 10*time.Millisecond, time.Minute, func(c *Config) *time.Duration { return &c.Redis.Timeout },
			"How long sending a command, and the answer to it, may take."),

		numbers("queues", "default=1", "weight", "queue", 1000, func(c *Config) *map[string]int { return &c.Queues },
			"The queues to take tasks from and their weights: a queue of weight 3 is looked at three times as often as one of weight 1."),
		numbers("shards", "", "number", "shards", queue.MaxShards, func(c *Config) *map[string]int { return &c.Shards },
			"Over how many asynq queues a queue is spread, so that the masters of a Redis Cluster share its load; the same for all workers and "+
				"for enqueue. A queue that is not named has none. Workers first when a number grows; docs/design.md#shards has the rest."),
		boolean("strict_priority", "false", func(c *Config) *bool { return &c.StrictPriority },
			"Whether a queue is looked at only while all those of higher weights are empty. Not together with shards."),
		number("concurrency", "20", 1, 10000, func(c *Config) *int { return &c.Concurrency },
			"How many tasks run at once. Waiting tasks do not count: they are not in a worker."),
		boolean("doorbell", "true", func(c *Config) *bool { return &c.Doorbell },
			"Whether an idle worker waits, on a connection more, for word of a new task, instead of polling for it."),
		auto("poll_interval", time.Minute, func(c *Config) *time.Duration { return &c.PollInterval },
			"How often an idle worker looks for tasks of which it had no word, such as those of a plain asynq client; without a doorbell, for any. "+
				"auto is 1s with a doorbell, and 10ms without."),
		duration("timer_interval", "500ms", 10*time.Millisecond, time.Minute, func(c *Config) *time.Duration { return &c.TimerInterval },
			"How often delayed and waiting tasks are looked at for timers that have run out."),

		duration("shutdown.timeout", "8s", 10*time.Millisecond, time.Hour, func(c *Config) *time.Duration { return &c.Shutdown.Timeout },
			"How long running tasks may go on after SIGTERM; then they are put back for other workers."),
		duration("shutdown.hard_deadline", "15s", 10*time.Millisecond, 2*time.Hour, func(c *Config) *time.Duration { return &c.Shutdown.HardDeadline },
			"When the process ends after SIGTERM whatever still runs, also when Redis is gone. More than shutdown.timeout; "+
				"less than what the system waits before it kills (Docker 10s, Kubernetes 30s, unless told otherwise)."),

		prefix("lock.prefix", "lock:", func(c *Config) *string { return &c.Lock.Prefix },
			"What precedes a resource in its lock's key. All programs that are to exclude one another need the same."),
		duration("lock.ttl", "15s", 100*time.Millisecond, 24*time.Hour, func(c *Config) *time.Duration { return &c.Lock.TTL },
			"How long a lock outlives a holder that died."),
		auto("lock.renew_every", 24*time.Hour, func(c *Config) *time.Duration { return &c.Lock.RenewEvery },
			"How often a held lock is renewed; auto is a third of ttl. At most half of ttl less margin."),
		auto("lock.margin", 24*time.Hour, func(c *Config) *time.Duration { return &c.Lock.Margin },
			"How long before a lock may expire its holder gives it up; auto is a fifteenth of ttl."),
		duration("lock.grace", "5s", time.Millisecond, 24*time.Hour, func(c *Config) *time.Duration { return &c.Lock.Grace },
			"How long a released lock is kept for the next in line."),
		duration("lock.fence_retention", "1m", time.Millisecond, 24*time.Hour, func(c *Config) *time.Duration { return &c.Lock.FenceRetention },
			"How long the last fencing token of an idle resource is remembered: the step back of the Redis server's clock that is tolerated. "+
				"Each idle resource costs about 130 bytes for so long."),

		number("recovery.crashes", "3", 0, 1000, func(c *Config) *int { return &c.Recovery.Crashes },
			"How many crashes of its worker a task is spared: it then runs again within 25s and at no charge. After so many, and with 0 always, it is left to "+
				"asynq, which runs it again after a minute or more, and charges an attempt."),
		number("recovery.losses", "10", 0, 1000, func(c *Config) *int { return &c.Recovery.Losses },
			"How many times a task that lost its lock while it ran runs again at no charge, after 1s at first and up to 1m later each time. After so many, and "+
				"with 0 always, the loss is a failure of its own, and charges an attempt."),
		boolean("recovery.no_retries", "false", func(c *Config) *bool { return &c.Recovery.NoRetries },
			"Whether a task that is not to be retried runs again as well if its worker crashed while it ran. Otherwise asynq archives it."),

		dsn("ledger.dsn", "ledger.db", "ledger", func(c *Config) *Secret { return &c.Ledger.DSN },
			"Where the tasks keep their results: the path of an SQLite file, or postgres://user@host/database. "+
				"One with a password goes into SIDING_LEDGER_DSN; PGPASSWORD and PGPASSFILE work too."),

		address("http.address", "127.0.0.1:8080", "http", func(c *Config) *string { return &c.HTTP.Address },
			"Where the dashboard, /healthz and /readyz are served; port 0 picks a free one, off serves nothing. "+
				"An address that others can reach needs a password, or no dashboard. There is no TLS, which is a proxy's to add."),
		boolean("http.dashboard", "true", func(c *Config) *bool { return &c.HTTP.Dashboard },
			"Whether to serve the dashboard; without it the probes alone."),
		boolean("http.read_only", "false", func(c *Config) *bool { return &c.HTTP.ReadOnly },
			"Whether the dashboard may only look."),
		login("http.username", "siding", func(c *Config) *string { return &c.HTTP.Username },
			"The user name that the dashboard asks for, once it has a password."),
		secret("http.password", func(c *Config) *Secret { return &c.HTTP.Password }),
		text("http.password_file", func(c *Config) *string { return &c.HTTP.PasswordFile },
			"A file that holds the dashboard's password alone; SIDING_HTTP_PASSWORD is the other way. The probes ask for none."),

		choice("log.level", "info", []string{"debug", "info", "warn", "error"}, func(c *Config, v string) { _ = c.Log.Level.UnmarshalText([]byte(v)) }, // one of the four always parses
			"What is logged: this level and those above it."),
		choice("log.format", "text", []string{"text", "json"}, func(c *Config, v string) { c.Log.Format = v },
			"One line of text, or one JSON object, for each record on standard error."),
	}
}
