package config

import (
	"log/slog"
	"time"

	"github.com/sidingq/siding/queue"
)

// Settings returns the table of all settings, in the order of the file.
func Settings() []Setting { return table(new(Config)) }

// table returns the settings, whose values go into c.
func table(c *Config) []Setting {
	const ms, day = time.Millisecond, 24 * time.Hour
	server, tasks := &c.Queue.Asynq, &c.Queue
	return []Setting{
		servers(&c.Redis.Addrs, "redis.addrs", "127.0.0.1:6379",
			"The addresses of Redis: one server, the Sentinels (see master_name), or some nodes of a cluster (see cluster).").flag("redis"),
		text(&c.Redis.Username, "redis.username", "The user name for Redis; empty for the default user."),
		secret(&c.Redis.Password, "redis.password"),
		text(&c.Redis.PasswordFile, "redis.password_file", "A file with the password alone. SIDING_REDIS_PASSWORD is the other way."),
		number(&c.Redis.DB, "redis.db", "0", 0, 16383, "The number of the database. A cluster has only 0."),
		text(&c.Redis.MasterName, "redis.master_name", "The name of the master that the Sentinels at addrs watch; empty without Sentinels."),
		text(&c.Redis.SentinelUsername, "redis.sentinel_username", "The user name for the Sentinels."),
		secret(&c.Redis.SentinelPassword, "redis.sentinel_password"),
		text(&c.Redis.SentinelPasswordFile, "redis.sentinel_password_file",
			"A file with the Sentinels' password alone. SIDING_REDIS_SENTINEL_PASSWORD is the other way."),
		boolean(&c.Redis.Cluster, "redis.cluster", "false", "Treat addrs as nodes of a Redis Cluster."),
		boolean(&c.Redis.TLS, "redis.tls", "false", "Connect to Redis by TLS, 1.2 or newer."),
		text(&c.Redis.TLSServerName, "redis.tls_server_name", "The name in the server's certificate; empty for the host in addrs."),
		text(&c.Redis.TLSCAFile, "redis.tls_ca_file", "A PEM file of the authorities to trust; empty for those of the system."),
		text(&c.Redis.TLSCertFile, "redis.tls_cert_file", "A PEM file of the client's certificate, for servers that ask for one."),
		text(&c.Redis.TLSKeyFile, "redis.tls_key_file", "A PEM file of the key of that certificate."),
		duration(&c.Redis.DialTimeout, "redis.dial_timeout", "2s", 10*ms, time.Minute, "The longest time to connect to Redis."),
		duration(&c.Redis.Timeout, "redis.timeout", "3s", 10*ms, time.Minute, "The longest time to send a command, and to read its reply."),

		numbers(&server.Queues, "queues", "default=1", "weight", 1000,
			"The queues to take tasks from, and their weights. A worker looks at a queue of weight 3 three times as often as at one of weight 1.").flag("queue"),
		numbers(&c.Queue.Shards, "shards", "", "number", queue.MaxShards,
			"The number of asynq queues that a queue is spread over, so that the masters of a Redis Cluster share its load. "+
				"All workers and enqueue need the same numbers. To raise a number, restart the workers first: docs/guides/cluster.md."),
		boolean(&server.StrictPriority, "strict_priority", "false", "Look at a queue only while all queues of higher weights are empty. Not together with shards."),
		number(&server.Concurrency, "concurrency", "20", 1, 10000, "How many tasks run at once. Tasks that wait for their resource do not count."),
		duration(&server.DelayedTaskCheckInterval, "timer_interval", "500ms", 10*ms, time.Minute,
			"How often one worker, on behalf of all, looks for new delayed and retried tasks. Those that it has seen come up in time. More than 1s counts as 1s."),

		duration(&server.ShutdownTimeout, "shutdown.timeout", "8s", 10*ms, time.Hour,
			"How long running tasks may go on after SIGTERM. Then the worker gives them back to the queue."),
		duration(&c.HardDeadline, "shutdown.hard_deadline", "15s", 10*ms, 2*time.Hour,
			"How long after SIGTERM the process ends whatever still runs, also if Redis does not answer. More than shutdown.timeout; "+
				"less than the time after which the system kills the process (by default 10s in Docker, 30s in Kubernetes)."),

		prefix(&tasks.Lock.Prefix, "lock.prefix", "lock:", "The beginning of each lock's key in Redis. Programs that exclude one another need the same prefix."),
		duration(&tasks.Lock.TTL, "lock.ttl", "15s", 100*ms, day, "How long a lock outlives a holder that died."),
		auto(&tasks.Lock.RenewEvery, "lock.renew_every", day,
			"How often a holder renews its lock, at most half of ttl less safety_margin. auto is a third of ttl."),
		auto(&tasks.Lock.SafetyMargin, "lock.safety_margin", day, "The holder stops this long before its lock can expire. auto is a fifteenth of ttl."),
		duration(&tasks.Lock.HandoffTimeout, "lock.handoff_timeout", "1s", ms, day, "How long a released lock stays reserved for a goroutine that waits for it."),
		duration(&tasks.Lock.FenceRetention, "lock.fence_retention", "1m", ms, day,
			"How long Redis keeps the last fencing token of an idle resource. Redis' clock may step back by this much. Each idle resource takes about 130 bytes meanwhile."),

		boolean(&tasks.AllowOtherLocks, "lock.allow_others", "false",
			"Start beside live workers of the same queues whose locks have another prefix or store, although tasks of one resource may then run at once."),

		limits(&tasks.Limits, "limits",
			"How many tasks may hold a resource at once, and how often one may start, by pattern: a resource, or a text such as \"account:*\" for all that begin so. "+
				"The longest pattern counts. Without a limit one task holds a resource at a time. All workers need the same limits: docs/guides/limits.md. "+
				"An example, also for a variable or a flag, is {\"account:*\": {holders: 5, rates: [100/1s, 1000/1h]}}."),
		policies(&tasks.Policies, "policies",
			"What becomes of a task whose resource is busy, and of those behind one that has failed, by the kind of the task. Without a policy the task waits, and is overtaken. "+
				"A task with a policy of its own has that one. All workers need the same policies: docs/guides/policies.md. "+
				"An example, also for a variable or a flag, is {\"order:ship\": {on_failure: hold}, \"mail:digest\": {on_busy: coalesce, max_wait: 1h}}."),

		number(&tasks.Recovery.Crashes, "recovery.crashes", "3", 0, 1000,
			"How many worker crashes cost a task no retry. The task runs again as soon as its lock has expired and a slot is free. "+
				"Each crash after that costs a retry."),
		number(&tasks.Recovery.Losses, "recovery.losses", "10", 0, 1000,
			"How many lost locks cost a task no retry. The task runs again after 1s, then 2s, 4s and so on, 1m at most. A further loss costs a retry."),

		dsn(&c.LedgerDSN, "ledger.dsn", "ledger.db",
			"The database of the demo shop: the path of an SQLite file, or postgres://user@host/database. "+
				"Put a password into SIDING_LEDGER_DSN, PGPASSWORD or PGPASSFILE.").flag("ledger"),

		address(&c.HTTP.Address, "http.address", "127.0.0.1:8080",
			"The address of the dashboard, /metrics, /healthz and /readyz. Port 0 is a free port; off serves nothing. "+
				"If other machines can reach the address, the dashboard needs a password. A proxy can add TLS.").flag("http"),
		boolean(&c.HTTP.Dashboard, "http.dashboard", "true", "Serve the dashboard. Without it the worker serves the probes and /metrics alone."),
		boolean(&c.HTTP.Metrics, "http.metrics", "true", "Serve /metrics for Prometheus. Like the probes, it asks for no password."),
		boolean(&c.HTTP.ReadOnly, "http.read_only", "false", "Let the dashboard show tasks, but change none."),
		login(&c.HTTP.Username, "http.username", "siding", "The user name that the dashboard asks for, if it has a password."),
		secret(&c.HTTP.Password, "http.password"),
		text(&c.HTTP.PasswordFile, "http.password_file",
			"A file with the dashboard's password alone. SIDING_HTTP_PASSWORD is the other way. The probes ask for none."),

		choice(&c.Log.Level, "log.level", "info", "debug, info, warn or error", "The lowest level of messages in the log.",
			map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}),
		choice(&c.Log.Format, "log.format", "text", "text or json", "Write each message to standard error as a line of text, or as a JSON object.",
			map[string]string{"text": "text", "json": "json"}),
	}
}
