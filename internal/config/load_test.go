package config_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
)

// write makes a file named config.yaml with the text and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// load loads the settings from a file, none if the path is empty, from an environment, and from flags.
func load(path string, vars map[string]string, flags ...config.Override) (config.Config, error) {
	sources := config.Sources{File: path, Flags: flags}
	for name, value := range vars {
		sources.Environ = append(sources.Environ, name+"="+value)
	}
	return sources.Load()
}

// wantConfig compares two configurations, wherever their values come from.
func wantConfig(t *testing.T, what string, have, want config.Config) {
	t.Helper()
	expect.Same(t, what, have, want, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(config.Config{}))
}

// everyWay loads a setting from a mapping in a file, in the environment over that of a file, and from two flags over that of the
// environment.
func everyWay(t *testing.T, key, mapping, other, first, rest string) map[string]config.Config {
	t.Helper()
	variable, file := "SIDING_"+strings.ToUpper(key), write(t, key+": "+other+"\n")
	_, all, _ := strings.Cut(mapping, ":\n")
	return map[string]config.Config{
		"file":        expect.Value(load(write(t, mapping), nil))(t),
		"environment": expect.Value(load(file, map[string]string{variable: all}))(t),
		"flags":       expect.Value(load("", map[string]string{variable: other}, config.Override{Flag: key, Value: first}, config.Override{Flag: key, Value: rest}))(t),
	}
}

// wantRefused wants files of some texts refused, each with an error behind the file's path, which may be in it once more as %s.
func wantRefused(t *testing.T, errorsOf map[string]string) {
	t.Helper()
	for text, want := range errorsOf {
		path := write(t, text)
		_, err := load(path, nil)
		want = path + ":" + strings.ReplaceAll(want, "%s", path)
		expect.That(t, err != nil && err.Error() == want, "%q:\nwant %s\nhave %v", text, want, err)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"empty": "", "comment": "# nothing\n", "null": "~\n", "empty sections": "redis:\nlock:\n  # ttl: 3s\nhttp: ~\n"} {
		have := expect.Value(load(write(t, text), nil))(t)
		wantConfig(t, name, have, config.Default())
	}
	have := expect.Value(load("", nil))(t)
	expect.That(t, have.Queue.Asynq.Concurrency == 20 && have.Queue.Lock.TTL == 15*time.Second && have.HTTP.Address == "127.0.0.1:8080" && have.HTTP.Dashboard && have.HTTP.Metrics && have.Log.Level == slog.LevelInfo, "want the documented defaults, have %+v", have)
	expect.Is(t, "defaults", have.Server(nil, nil).Validate(), nil)
}

// Every setting can be given in all three ways, and means the same.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	path := write(t, `
concurrency: 5
timer_interval: 5s
http:
  metrics: false
queues: {critical: 6, default: 3}
shards: {critical: 4}
redis:
  addrs: [one:1, two:2]
  cluster: true
`)
	env := map[string]string{
		"SIDING_LOCK_TTL":       "6s",
		"SIDING_TIMER_INTERVAL": "6s",
		"SIDING_QUEUES":         "low=1, default=2",
		"SIDING_SHARDS":         "default=8,low=2",
		"SIDING_REDIS_PASSWORD": "secret",
		"SIDING_LOG_LEVEL":      "", // as good as unset
	}
	have, err := load(path, env,
		config.Override{Flag: "timer-interval", Value: "7s"},
		config.Override{Flag: "redis", Value: "three:3"},
		config.Override{Flag: "redis", Value: "four:4,five:5"},
	)
	expect.OK(t, err)
	want := config.Default()
	want.Queue.Asynq.Concurrency = 5
	want.Queue.Lock.TTL = 6 * time.Second
	want.HTTP.Metrics = false
	want.Queue.Asynq.DelayedTaskCheckInterval = 7 * time.Second
	want.Queue.Asynq.Queues = map[string]int{"low": 1, "default": 2}
	want.Queue.Shards = map[string]int{"default": 8, "low": 2}
	want.Redis.Addrs = []string{"three:3", "four:4", "five:5"}
	want.Redis.Cluster = true
	want.Redis.Password = "secret"
	wantConfig(t, "settings", have, want)
}

func TestFileErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		text string
		want string // after "config.yaml:"
	}{
		{"number too low", "# one\n\nconcurrency: -3\n", "3: concurrency: want 1 to 10000, have -3"},
		{"not a number", "concurrency: many\n", "1: concurrency: want 1 to 10000, have many"},
		{"number with a fraction", "concurrency: 2.5\n", "1: concurrency: want 1 to 10000, have 2.5"},
		{"no value", "concurrency:\n", "1: concurrency: want 1 to 10000, have nothing"},
		{"list for a number", "concurrency: [1]\n", "1: concurrency: want 1 to 10000, have a list"},
		{"mapping for a number", "concurrency: {a: 1}\n", "1: concurrency: want 1 to 10000, have a mapping"},
		{"duration without unit", "lock:\n  ttl: 15\n", "2: lock.ttl: want 100ms to 24h, have 15: its unit is missing, such as 15s"},
		{"duration too long", "lock:\n  ttl: 25h\n", "2: lock.ttl: want 100ms to 24h, have 25h"},
		{"bool", "http:\n  dashboard: yes\n", "2: http.dashboard: want true or false, have yes"},
		{"choice", "log:\n  level: verbose\n", "2: log.level: want debug, info, warn or error, have verbose"},
		{"address", "http:\n  address: localhost\n", "2: http.address: want host:port or off, have localhost"},
		{"port", "http:\n  address: localhost:70000\n", "2: http.address: want host:port or off, have localhost:70000"},
		{"item of a list", "redis:\n  addrs:\n    - one:1\n    - two\n  cluster: true\n", "4: redis.addrs: want host:port, have two"},
		{"URL", "redis:\n  addrs: ['redis://:hunter2@one']\n", "2: redis.addrs: want host:port, have a URL: what else it has is in redis.tls, redis.username, redis.db and SIDING_REDIS_PASSWORD"},
		{"password in what is no URL", "redis:\n  addrs: [':hunter2@one:1']\n", "2: redis.addrs: want host:port, have [hidden]"},
		{"password in another address", "http:\n  address: 'http://ann:hunter2@one:1'\n", "2: http.address: want host:port or off, have [hidden]"},
		{"password in libpq's form", "ledger:\n  dsn: 'host=db password=hunter2'\n", "2: ledger.dsn: want no password in this file: set SIDING_LEDGER_DSN in the environment"},
		{"password after an address", "redis:\n  addrs: 'one:1,hunter2'\n", "2: redis.addrs: want host:port, have [hidden]"},
		{"list of passwords", "redis:\n  addrs: [one:1, password=hunter2]\n", "2: redis.addrs: want host:port, have [hidden]"},
		{"empty list", "redis:\n  addrs: []\n", "2: redis.addrs: want host:port, have nothing"},
		{"weight", "queues:\n  default: 1\n  low: 0\n", "3: queues: want a name without {}/?#%\\ and a weight of 1 to 1000, as name=weight, have low=0"},
		{"queue name", "queues: {'{a}': 1}\n", "1: queues: want a name without {}/?#%\\ and a weight of 1 to 1000, as name=weight, have {a}=1"},
		{"queue that is a path", "queues: {'a/b': 1}\n", "1: queues: want a name without {}/?#%\\ and a weight of 1 to 1000, as name=weight, have a/b=1"},
		{"queue twice", "queues:\n  a: 1\n  a: 2\n", "3: queues: a is there twice"},
		{"shards", "shards: {orders: 1001}\n", "1: shards: want a name without {}/?#%\\ and a number of 1 to 1000, as name=number, have orders=1001"},
		{"shards of nothing", "shards:\n", "1: shards: want a name without {}/?#%\\ and a number of 1 to 1000, as name=number, have nothing"},
		{"a queue of a shard's name", "queues:\n  orders.003-xh: 1\nshards:\n  orders: 2\n", "1: queues: want no name of a shard of orders, have orders.003-xh"},
		{"shards in strict order", "strict_priority: true\nqueues: {ttl: 1}\nshards:\n  ttl: 2\n", "3: shards: ttl: want none with strict_priority, as one shard would go before the other, have 2"},
		{"queues as a list", "queues: [a]\n", "1: queues: want a name without {}/?#%\\ and a weight of 1 to 1000, as name=weight, have a list"},
		{"prefix", "lock:\n  prefix: '{lock}:'\n", "2: lock.prefix: want 1 to 64 bytes without braces and control characters, have {lock}:"},
		{"control character", "redis:\n  username: \"a\\tb\"\n", "2: redis.username: want text without control characters, have \"a\\tb\""},
		{"misspelt", "concurency: 3\n", "1: concurency: no such setting; did you mean concurrency? worker --help lists all"},
		{"misspelt in a section", "lock:\n  renewEvry: 3s\n", "2: lock.renewEvry: no such setting; did you mean lock.renew_every? worker --help lists all"},
		{"wrong section", "redis:\n  ttl: 3s\n", "2: redis.ttl: no such setting; did you mean lock.ttl? worker --help lists all"},
		{"unknown", "colour: blue\n", "1: colour: no such setting; worker --help lists all"},
		{"merge key", "<<: {concurrency: 3}\n", "1: <<: no such setting; worker --help lists all"},
		{"unlike in a section", "redis:\n  url: x\n", "2: redis.url: no such setting; worker --help lists all"},
		{"short and unlike", "redis:\n  q: x\n", "2: redis.q: no such setting; worker --help lists all"},
		{"close to several", "redis:\n  tls_ky_file: x\n", "2: redis.tls_ky_file: no such setting; did you mean redis.tls_key_file? worker --help lists all"},
		{"letters in another order", "redis:\n  tsl: x\n", "2: redis.tsl: no such setting; did you mean redis.tls? worker --help lists all"},
		{"the beginning of a name", "http:\n  user: x\n", "2: http.user: no such setting; did you mean http.username? worker --help lists all"},
		{"key twice", "concurrency: 3\nlog:\n  level: info\nconcurrency: 4\n", "4: concurrency: is there twice, first in line 1"},
		{"section twice", "log:\n  level: info\nlog:\n  format: json\n", "3: log: is there twice, first in line 1"},
		{"scalar for a section", "log: debug\n", "1: log: want settings below it, have \"debug\""},
		{"password for a section", "redis: 'redis://:hunter2@one'\n", "1: redis: want settings below it, have [hidden]"},
		{"list at the top", "- concurrency\n", "1: want settings as \"key: value\", have a list"},
		{"scalar at the top", "concurrency\n", "1: want settings as \"key: value\", have \"concurrency\""},
		{"second document", "concurrency: 3\n---\nconcurrency: 4\n", "2: want one document, have a second one"},
		{"password", "redis:\n  password: hunter2\n", "2: redis.password: want no password in this file: set SIDING_REDIS_PASSWORD in the environment"},
		{"sentinel password", "redis:\n  sentinel_password: ~\n", "2: redis.sentinel_password: want no password in this file: set SIDING_REDIS_SENTINEL_PASSWORD in the environment"},
		{"password in the DSN", "ledger:\n  dsn: postgres://me:hunter2@db/x\n", "2: ledger.dsn: want no password in this file: set SIDING_LEDGER_DSN in the environment"},
		{"password as a parameter", "ledger:\n  dsn: postgres://me@db/x?password=hunter2\n", "2: ledger.dsn: want no password in this file: set SIDING_LEDGER_DSN in the environment"},
		{"password in no URL", "ledger:\n  dsn: postgres://me:hunter2%zz@db/x\n", "2: ledger.dsn: want no password in this file: set SIDING_LEDGER_DSN in the environment"},
		{"no DSN", "ledger:\n  dsn: ''\n", "2: ledger.dsn: want a path, or postgres://user@host/database, have nothing"},
		{"deadline below timeout", "shutdown:\n  timeout: 20s\n", "2: shutdown.timeout: want less than shutdown.hard_deadline (15s), have 20s"},
		{"timeout above deadline", "shutdown:\n  hard_deadline: 5s\n", "2: shutdown.hard_deadline: want more than shutdown.timeout (8s), have 5s"},
		{"renewal too slow", "lock:\n  ttl: 6s\n  renew_every: 5s\n", "3: lock.renew_every: want at most half of lock.ttl - lock.safety_margin (2.8s), have 5s"},
		{"safety margin too large", "lock:\n  safety_margin: 15s\n", "2: lock.safety_margin: want less than lock.ttl (15s), have 15s"},
		{"safety margin leaves no time", "lock:\n  safety_margin: 10s\n", "2: lock.safety_margin: lock.renew_every: want at most half of lock.ttl - lock.safety_margin (2.5s), have 5s"},
		{"several addresses", "redis:\n  addrs: [a:1, b:2]\n", "2: redis.addrs: want one address, or redis.cluster, or redis.master_name, have 2 addresses"},
		{"cluster with sentinels", "redis:\n  master_name: m\n  cluster: true\n", "3: redis.cluster: want redis.cluster or redis.master_name, have both"},
		{"cluster with database", "redis:\n  db: 2\n  cluster: true\n", "2: redis.db: want 0 with redis.cluster, have 2"},
		{"sentinel user alone", "redis:\n  sentinel_username: me\n", "2: redis.sentinel_username: want redis.master_name with it, have none"},
		{"TLS file without TLS", "redis:\n  tls_server_name: ''\n  tls_ca_file: ca.pem\n", "3: redis.tls_ca_file: want redis.tls: true with it, have false"},
		{"dashboard's password", "http:\n  password: hunter2\n", "2: http.password: want no password in this file: set SIDING_HTTP_PASSWORD in the environment"},
		{"user name with a colon", "http:\n  username: ann:hunter2\n", "2: http.username: want text without colons and control characters, have [hidden]"},
		{"no user name", "http:\n  username: ''\n", "2: http.username: want text without colons and control characters, have nothing"},
		{"key without certificate", "redis:\n  tls: true\n  tls_key_file: key.pem\n", "3: redis.tls_key_file: want redis.tls_cert_file and redis.tls_key_file, have only one"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := write(t, test.text)
			_, err := load(path, nil)
			if want := path + ":" + test.want; err == nil || err.Error() != want {
				t.Errorf("\nwant %s\nhave %v", want, err)
			}
		})
	}
}

func TestFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	expect.OK(t, os.WriteFile(large, []byte(strings.Repeat("#\n", 1<<20)), 0o600))
	for _, path := range []string{filepath.Join(dir, "missing.yaml"), dir, large} {
		if _, err := load(path, nil); err == nil || !strings.HasPrefix(err.Error(), "--config: ") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: want an error that names it and the flag, have %v", path, err)
		}
		if _, err := load("", map[string]string{"SIDING_CONFIG": path}); err == nil || !strings.HasPrefix(err.Error(), "SIDING_CONFIG: ") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: want an error that names it and the variable, have %v", path, err)
		}
	}
}

func TestEnvironmentAndFlagErrors(t *testing.T) {
	t.Parallel()
	const address = "host:port"
	tests := []struct {
		name  string
		env   map[string]string
		flags []config.Override
		want  string
	}{
		{"variable", map[string]string{"SIDING_CONCURRENCY": "0"}, nil, "SIDING_CONCURRENCY: want 1 to 10000, have 0"},
		{"item of a variable", map[string]string{"SIDING_QUEUES": "a=1,b"}, nil, "SIDING_QUEUES: want a name without {}/?#%\\ and a weight of 1 to 1000, as name=weight, have b"},
		{"flag", nil, []config.Override{{Flag: "lock-ttl", Value: "1"}}, "--lock-ttl: want 100ms to 24h, have 1: its unit is missing, such as 1s"},
		{"flag with nothing", nil, []config.Override{{Flag: "concurrency"}}, "--concurrency: want 1 to 10000, have nothing"},
		{"flag with blanks", nil, []config.Override{{Flag: "http", Value: "a b"}}, `--http: want host:port or off, have "a b"`},
		{
			"limits",
			map[string]string{"SIDING_LIMITS": "b"},
			[]config.Override{
				{Flag: "limits", Value: "{a: {holders: 5}, b: {rates: 1/1}}"},
				{Flag: "limits", Value: "a: {holders: 6}"},
				{Flag: "limits", Value: "{a"},
				{Flag: "limits", Value: "c: {holders: 5}\n---\nd: {holders: 5}"},
			},
			"SIDING_LIMITS: want a pattern with 1 to 1000 holders, with at most 8 rates such as 100/1s, or with both, in a mapping such as {NAME: {...}}, have b\n" +
				`--limits: "b": rates: want starts/period such as 100/1s, have "1/1"` + "\n--limits: a is there twice\n" +
				"--limits: want a pattern with 1 to 1000 holders, with at most 8 rates such as 100/1s, or with both, in a mapping such as {NAME: {...}}, have {a" +
				"\n--limits: want a pattern with 1 to 1000 holders, with at most 8 rates such as 100/1s, or with both, in a mapping such as {NAME: {...}}, " +
				`have "c: {holders: 5}\n---\nd: {holders: 5}"`,
		},
		{
			"policies",
			map[string]string{"SIDING_POLICIES": "b"},
			[]config.Override{{Flag: "policies", Value: "{a: {on_busy: rejects}}"}},
			"SIDING_POLICIES: want a kind of task with on_busy, max_wait, max_waiting, use_retries or on_failure, in a mapping such as {NAME: {...}}, have b\n" +
				`--policies: "a": on_busy: want park, reject, coalesce or replace, have rejects`,
		},
		{"queue twice in flags", nil, []config.Override{{Flag: "queue", Value: "a=1"}, {Flag: "queue", Value: "a=2"}}, "--queue: a is there twice"},
		{"unknown flag", nil, []config.Override{{Flag: "redis-password", Value: "hunter2"}}, "--redis-password: no such setting"},
		{"password in a flag", nil, []config.Override{{Flag: "ledger", Value: "postgres://me:hunter2@db/x"}}, "--ledger: want no password on the command line, where others can read it: set SIDING_LEDGER_DSN"},
		{"relation over sources", map[string]string{"SIDING_LOCK_RENEW_EVERY": "5s"}, []config.Override{{Flag: "lock-ttl", Value: "6s"}}, "SIDING_LOCK_RENEW_EVERY: want at most half of lock.ttl - lock.safety_margin (2.8s), have 5s"},
		{
			"password after an address",
			map[string]string{"SIDING_REDIS_ADDRS": "redis.example.net:6380,password=hunter2,ssl=True"},
			nil,
			"SIDING_REDIS_ADDRS: want " + address + ", have [hidden]\nSIDING_REDIS_ADDRS: want " + address + ", have [hidden]",
		},
		{"bare password after an address", nil, []config.Override{{Flag: "redis", Value: "host:6379,hunter2"}}, "--redis: want " + address + ", have [hidden]"},
		{"password for a port", nil, []config.Override{{Flag: "redis", Value: "localhost:hunter2"}}, "--redis: want " + address + ", have [hidden]"},
		{"password before a port", nil, []config.Override{{Flag: "redis", Value: "one:1,password=hunter2:6380"}}, "--redis: want " + address + ", have [hidden]"},
		{"host without a port", nil, []config.Override{{Flag: "redis", Value: "redis-1.example.net"}}, "--redis: want " + address + ", have redis-1.example.net"},
		{"IPv6 without a port", nil, []config.Override{{Flag: "redis", Value: "2001:db8::1"}}, "--redis: want " + address + ", have 2001:db8::1"},
		{"port out of range", nil, []config.Override{{Flag: "redis", Value: "one:1,[::1]:70000"}}, "--redis: want " + address + ", have [::1]:70000"},
		{"two passwords", map[string]string{"SIDING_REDIS_PASSWORD": "a", "SIDING_REDIS_PASSWORD_FILE": "b"}, nil, "SIDING_REDIS_PASSWORD_FILE: want SIDING_REDIS_PASSWORD or redis.password_file, have both"},
		{"two passwords of the dashboard", map[string]string{"SIDING_HTTP_PASSWORD": "a", "SIDING_HTTP_PASSWORD_FILE": "b"}, nil, "SIDING_HTTP_PASSWORD_FILE: want SIDING_HTTP_PASSWORD or http.password_file, have both"},
		{"long value", map[string]string{"SIDING_CONCURRENCY": strings.Repeat("1", 100)}, nil, `SIDING_CONCURRENCY: want 1 to 10000, have "` + strings.Repeat("1", 80) + `"...`},
		{
			"all mistakes",
			map[string]string{"SIDING_CONCURRENCY": "0", "SIDING_LOG_LEVEL": "x"},
			[]config.Override{{Flag: "http", Value: "x"}},
			"SIDING_CONCURRENCY: want 1 to 10000, have 0\nSIDING_LOG_LEVEL: want debug, info, warn or error, have x\n--http: want host:port or off, have x",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := load("", test.env, test.flags...)
			expect.That(t, err != nil && err.Error() == test.want, "\nwant %s\nhave %v", test.want, err)
		})
	}
}

// The YAML library says what is no YAML, behind the path of the file, and shows nothing of the text.
func TestFileThatIsNoYAML(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"concurrency: 3\n\tx: 4\n":                     "line 2: found a tab character that violates indentation",
		"concurrency: 3\n---\n\n\tx: 4\n":              "line 4: found character that cannot start any token",
		"ledger:\n  dsn: 'hunter2\nlock:\n  ttl: 6s\n": "line 2: found unexpected end of stream",
		"concurrency: 3\nqueues: *x\n":                 "unknown anchor 'x' referenced",
		"concurrency: 3\nlog: \xff\n":                  "invalid leading UTF-8 octet",
	} {
		path := write(t, text)
		_, err := load(path, nil)
		expect.That(t, err != nil && err.Error() == path+": yaml: "+want, "%q: want %s, have %v", text, want, err)
	}
}

// A later source mends what an earlier one has set wrong together with it.
func TestRelationsAreCheckedLast(t *testing.T) {
	t.Parallel()
	path := write(t, "lock:\n  ttl: 6s\n  renew_every: 5s\n")
	have, err := load(path, map[string]string{"SIDING_LOCK_TTL": "30s"})
	expect.That(t, err == nil && have.Queue.Lock.TTL == 30*time.Second, "want a ttl of 30s, have %v, %v", have.Queue.Lock.TTL, err)
}

// A variable that begins like a setting and is none is an error, beside the other mistakes.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"PATH": "/bin", "SIDING_CONFIG": "", "SIDING_ORDERS": "x", "SIDING_SEED": "x", "SIDING_VERIFY": "x", "SIDING_TEST_ANYTHING": "x"}
	for _, s := range config.Settings() {
		vars[s.Env] = ""
	}
	if _, err := load("", vars); err != nil {
		t.Errorf("want no error, have %v", err)
	}
	for _, link := range []string{"SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_METRICS", "PORT", "PORT_8080_TCP", "PORT_8080_TCP_ADDR"} {
		vars["SIDING_"+link], vars["SIDING_WORKER_"+link] = "x", "x" // of Kubernetes
	}
	if _, err := load("", vars); err != nil {
		t.Errorf("services of the namespace: want no error, have %v", err)
	}
	vars["SIDING_CONCURENCY"], vars["SIDING_HTTP_PORT"], vars["SIDING_LANES"], vars["SIDING_REDIS_ADDR"], vars["SIDING_SHARDS"] = "3", "80", "3", "x:1", "x"
	_, err := load("", vars)
	want := "SIDING_SHARDS: want a name without {}/?#%\\ and a number of 1 to 1000, as name=number, have x\n" +
		"SIDING_CONCURENCY: no such setting; did you mean SIDING_CONCURRENCY? worker --help lists all\n" +
		"SIDING_HTTP_PORT: no such setting; worker --help lists all\nSIDING_LANES: no such setting; worker --help lists all\n" +
		"SIDING_REDIS_ADDR: no such setting; did you mean SIDING_REDIS_ADDRS? worker --help lists all"
	expect.That(t, err != nil && err.Error() == want, "\nwant %s\nhave %v", want, err)
}

func TestAliases(t *testing.T) {
	t.Parallel()
	have, err := load(write(t, "timer_interval: &short 30ms\nlock:\n  ttl: 10s\n  safety_margin: *short\nqueues: &q {a: 1}\n"), nil)
	expect.That(t, err == nil && have.Queue.Lock.SafetyMargin == 30*time.Millisecond, "want a safety margin of 30ms, have %v, %v", have.Queue.Lock.SafetyMargin, err)
	if _, err := load(write(t, "queues: &q\n  a: *q\n"), nil); err == nil {
		t.Error("a queue whose weight is all queues: want an error")
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	have, err := load("", map[string]string{
		"SIDING_REDIS_PASSWORD": secret, "SIDING_HTTP_PASSWORD": secret, "SIDING_LEDGER_DSN": "postgres://me:" + secret + "@db/x",
	})
	expect.OK(t, err)
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.InfoContext(t.Context(), "loaded", "config", have, "password", have.Redis.Password)
	for _, text := range []string{fmt.Sprint(have), fmt.Sprintf("%+v", have), fmt.Sprintf("%#v", have), log.String()} {
		expect.That(t, !strings.Contains(text, secret), "want no password in %s", text)
	}
	expect.That(t, string(have.Redis.Password) == secret, "want the password there all the same")
}

func TestServer(t *testing.T) {
	t.Parallel()
	have := expect.Value(load("", nil, config.Override{Flag: "queue", Value: "a=3"}, config.Override{Flag: "shards", Value: "b=5"}, config.Override{Flag: "strict-priority", Value: "true"}, config.Override{Flag: "shutdown-timeout", Value: "1s"}, config.Override{Flag: "recovery-losses", Value: "0"}))(t)
	want := have.Server(nil, nil)
	if client := have.Client(); client.Shards["b"] != 5 || want.Shards["b"] != 5 {
		t.Errorf("want 5 shards for clients and servers, have %v and %v", client.Shards, want.Shards)
	}
	a := want.Asynq
	if a.Queues["a"] != 3 || !a.StrictPriority || a.ShutdownTimeout != time.Second || want.Lock.TTL != 15*time.Second || a.Concurrency != 20 ||
		a.DelayedTaskCheckInterval != 500*time.Millisecond || want.Recovery != (queue.Recovery{Crashes: 3, Losses: -1}) {
		t.Errorf("want all settings of the queue handed on, have %+v", want)
	}
}
