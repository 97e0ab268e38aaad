package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/clitest"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "some.yaml")
	if err := os.WriteFile(file, []byte("redis:\n  addrs: [file:1]\n  db: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defaults := config.Default().Redis
	changed := func(change func(*config.Redis)) config.Redis {
		r := defaults
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		config, redis string
		environ       []string
		want          config.Redis
	}{
		"default":         {want: defaults},
		"file":            {config: file, want: changed(func(r *config.Redis) { r.Addrs, r.DB = []string{"file:1"}, 3 })},
		"file by name":    {environ: []string{"SIDING_CONFIG=" + file}, want: changed(func(r *config.Redis) { r.Addrs, r.DB = []string{"file:1"}, 3 })},
		"environment":     {config: file, environ: []string{"SIDING_REDIS_ADDRS=env:2", "SIDING_REDIS_PASSWORD=secret"}, want: changed(func(r *config.Redis) { r.Addrs, r.DB, r.Password = []string{"env:2"}, 3, "secret" })},
		"address":         {config: file, environ: []string{"SIDING_REDIS_ADDRS=env:2"}, redis: "flag:3", want: changed(func(r *config.Redis) { r.Addrs, r.DB = []string{"flag:3"}, 3 })},
		"URL":             {redis: "redis://host", want: changed(func(r *config.Redis) { r.Addrs = []string{"host:6379"} })},
		"URL with it all": {config: file, redis: "rediss://me@host:7/5", want: changed(func(r *config.Redis) { r.Addrs, r.Username, r.DB, r.TLS = []string{"host:7"}, "me", 5, true })},
		"URL with IPv6":   {redis: "redis://[::1]:7", want: changed(func(r *config.Redis) { r.Addrs = []string{"[::1]:7"} })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &app{environ: c.environ, flags: commonFlags{config: c.config, redis: c.redis}}
			have, err := a.settings()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, have.Redis); diff != "" {
				t.Errorf("settings (-want +have):\n%s", diff)
			}
		})
	}
}

func TestSettingsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config, redis string
		environ       []string
		want          string
	}{
		"misspelt variable": {"", "", []string{"SIDING_REDIS_ADDR=x:1"}, "SIDING_REDIS_ADDR: no such setting"},
		"no port":           {"", "host", nil, "--redis: want host:port"},
		"bad database":      {"", "redis://host/x", nil, "--redis: redis.db: want 0 to 16383, have [hidden]"},
		"query":             {"", "redis://host/?read_timeout=1s", nil, "--redis: want host:port or redis[s]://[user@]host[:port][/db]"},
		"no file":           {"/no/such.yaml", "", nil, "--config: open /no/such.yaml: no such file or directory"},
		"no URL":            {"", "redis://u:sec ret@host", nil, "--redis: want host:port or redis[s]://[user@]host[:port][/db]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &app{environ: c.environ, flags: commonFlags{config: c.config, redis: c.redis}}
			_, err := a.settings()
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "sec") {
				t.Errorf("want the error %q without the password, have %v", c.want, err)
			}
		})
	}
}

// Whatever is wrong with Redis, the program says so and ends soon.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	commands := [][]string{{"task", "order:audit", "--payload", `{"order":"1"}`}, {"stream"}}
	clitest.Away(t, "enqueue", " (without a Redis, worker --embedded", commands, func(t *testing.T, args ...string) (string, int) {
		t.Helper()
		have := enqueue(t, `{"kind":"order:audit","payload":{"order":"1"}}`, args...)
		return have.err, have.status
	})
}

func TestPasswordFromTheEnvironment(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "secret")
	environ := []string{"SIDING_REDIS_PASSWORD=secret", "SIDING_REDIS_ADDRS=" + server.Addr}
	have := enqueueIn(context.WithoutCancel(t.Context()), environ, "", "task", "order:audit", "--id", "x", "--payload", `{"order":"1"}`)
	wantResult(t, result{"x\n", "", cli.StatusOK}, have)
}
