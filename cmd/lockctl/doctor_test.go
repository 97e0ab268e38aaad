package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/taskredis"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// found returns the checks of a name that are no better than a status.
func (d diagnosis) found(name string, s status) (found []check) {
	for _, c := range d.Checks {
		if c.Check == name && c.Status == s {
			found = append(found, c)
		}
	}
	return found
}

// wantFound wants one check of the name, status and text, with its meaning and advice.
func wantFound(t *testing.T, d diagnosis, name string, s status, text string) {
	t.Helper()
	found := d.found(name, s)
	if !slices.ContainsFunc(found, func(c check) bool {
		return strings.Contains(c.Found, text) && (s == ok || c.Means != "" && c.Do != "")
	}) {
		t.Errorf("want %s: %s with %q, have %+v", s, name, text, d.Checks)
	}
}

// The guide explains each check.
func wantExplained(t *testing.T, checks []check) {
	t.Helper()
	text := expect.Value(os.ReadFile("../../docs/guides/lockctl.md"))(t)
	_, table, _ := strings.Cut(string(text), "\n| check | what it looks at |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	want := map[string]bool{"servers": true} // only if there is none
	for _, c := range checks {
		want[c.Check] = true
	}
	have := make(map[string]bool)
	for row := range strings.Lines(table) {
		for name := range strings.SplitSeq(strings.Split(row, "|")[1], ",") {
			have[strings.TrimSpace(name)] = true
		}
	}
	expect.That(t, maps.Equal(want, have), "docs/guides/lockctl.md: want the checks %v, have %v", want, have)
}

func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, "--appendonly", "yes")
	b.serve(t)
	b.enqueue(t, "first", "order:1")
	var d diagnosis
	expect.Eventually(t, "a server that looks after the queues", func() bool {
		d, _ = answer[diagnosis](t, b, "doctor")
		return slices.ContainsFunc(d.found("upkeep", ok), func(c check) bool { return c.Found == "a server looks after 1 set of queues" })
	})
	have := b.run(t, "", "doctor")
	wantExplained(t, d.Checks)
	expect.That(t, have.status == cli.StatusOK && d.Status == ok && strings.HasSuffix(have.out, "\n0 faults, 0 warnings\n"), "want nothing found, have status %d and\n%s%s", have.status, have.out, have.err)
	for _, want := range []string{"ok       redis: 127.0.0.1:", "\nSERVER ", " siding (devel), asynq "} {
		expect.That(t, strings.Contains(have.out, want), "want %q, have\n%s", want, have.out)
	}
	expect.That(t, len(d.Servers) == 1 && d.Servers[0].Guarded && len(d.Queues) == 1, "want one guarded server and one queue, have %+v, %+v", d.Servers, d.Queues)
}

func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	b := busy(t)
	// A server that takes no locks, a lock that never ends, a queue without a server, and a paused one.
	plain := asynq.NewServerFromRedisClient(b.at.Client(t), asynq.Config{Queues: map[string]int{"default": 1}, LogLevel: asynq.FatalLevel})
	expect.OK(t, b.rdb.Set(t.Context(), "lock:order:2", "somebody", 0).Err())
	b.enqueue(t, "fourth", "order:2")
	for id, q := range map[string]string{"fifth": "low", "sixth": "late"} {
		expect.OK(t, expect.Err(b.client.Enqueue(t.Context(), job{"order:3"}, &queue.Options{TaskID: id, Queue: q})))
	}
	expect.OK(t, asynq.NewInspectorFromRedisClient(b.rdb).PauseQueue("late"))
	expect.Eventually(t, "fourth waits", func() bool {
		one, _ := answer[shown](t, b, "show", "order:2")
		return one.Lock.Waiting == 1
	})
	expect.OK(t, plain.Start(asynq.NotFoundHandler()))
	t.Cleanup(plain.Shutdown)
	expect.Eventually(t, "both servers are known", func() bool {
		d, _ := answer[diagnosis](t, b, "doctor")
		return len(d.Servers) == 2
	})
	d, status := answer[diagnosis](t, b, "doctor")
	expect.That(t, status == exitTrouble && d.Status == faulty, "want status %d, have %d and %+v", exitTrouble, status, d)
	wantFound(t, d, "unguarded servers", faulty, "queues: default")
	wantFound(t, d, "locks", faulty, "order:2: another program holds the lock, which has no TTL; 1 waiter")
	wantFound(t, d, "queues", faulty, "no server serves low, which has 1 unfinished task")
	wantFound(t, d, "queues", faulty, "no server serves late")
	wantFound(t, d, "persistence", warning, "persistence off")
	wantFound(t, d, "eviction", ok, "")
	have := b.run(t, "", "doctor")
	expect.That(t, have.status == exitTrouble && strings.Contains(have.out, "\nfault    locks: order:2") && strings.Contains(have.out, "NO       default") && strings.Contains(have.out, "\n         do     "), "want the faults, have status %d and\n%s%s", have.status, have.out, have.err)
}

// What people and scripts see of the doctor is as in testdata.
func TestDiagnosisGolden(t *testing.T) {
	t.Parallel()
	d := diagnosis{
		Status: faulty,
		Checks: []check{
			{Check: "redis", Status: ok, Found: "127.0.0.1:6379 answers in 0.2 ms, version 7.0.15"},
			checkOf("persistence", queue.Finding{Trait: "persistence", Have: "off", Advice: "a Redis that restarts has lost all tasks: set appendonly yes"}),
			checkOf("eviction", queue.Finding{Server: "10.0.0.7:6379", Trait: "maxmemory-policy", Have: "allkeys-lru", Advice: "Redis throws away locks: set maxmemory-policy noeviction"}),
			checkOf("redis version", queue.Finding{Trait: "version"}),
			checkOf("clock of redis", queue.Finding{Server: "10.0.0.7:6379", Trait: "clock", Have: "3s ahead of this machine's", Advice: "tasks come too early: keep both clocks by NTP"}),
			{Check: "locks", Status: faulty, Found: "order:\x1b1: not served for 12 s", Means: "no slot is free", Do: "start a server"},
		},
		Servers: []inspect.Server{
			{Worker: inspect.Worker{Host: "web-3", PID: 4121}, ID: "5f2c", Queues: []string{"default", "low"}, Guarded: true, Versions: "siding v1.2.3, asynq v0.26.0, go1.26.8"},
			{Worker: inspect.Worker{Host: "web-4", PID: 9}, ID: "77aa", Queues: []string{"default"}, Unguarded: []string{"default"}},
			{Worker: inspect.Worker{Host: "mailer", PID: 12}, ID: "0b1c", Queues: []string{"mails"}},
		},
		Queues: []inspect.Queue{{Name: "default", Pending: 3, Servers: 2}},
	}
	for name, asJSON := range map[string]bool{"doctor.txt": false, "doctor.json": true} {
		a, out, _ := fakeApp(nil)
		a.json = asJSON
		expect.OK(t, a.print(d, func() string { return a.diagnosisText(d) }))
		golden(t, name, out.String())
	}
}

// Of many findings people are shown the first, and how many there are.
func TestManyFindings(t *testing.T) {
	t.Parallel()
	var checks []check
	for range 30 {
		checks = append(checks, check{Check: "orphans", Status: warning, Found: "w"}, check{Check: "orphans", Status: faulty, Found: "f"})
	}
	have := make(map[string]int)
	for _, c := range shorten(append(checks, check{Check: "locks", Status: ok, Found: "fine"})) {
		have[string(c.Status)+" "+c.Found]++
	}
	want := map[string]int{"warning w": 10, "fault f": 10, "warning and 20 more; --json has all": 1, "fault and 20 more; --json has all": 1, "ok fine": 1}
	expect.That(t, maps.Equal(have, want), "want %v, have %v", want, have)
}

// Valkey also tells with which Redis it is compatible.
func TestVersionIn(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]string{
		"": "",
		"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n":                     "7.0.15",
		"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n": "valkey 8.1.1",
	} {
		expect.Equal(t, fmt.Sprintf("%q", info), versionIn(info), want)
	}
}

// In a Cluster each node is asked.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	environ := []string{"SIDING_REDIS_CLUSTER=true", "SIDING_REDIS_ADDRS=" + strings.Join(cluster.Addrs, ",")}
	have := runIn(t.Context(), environ, "", "doctor")
	expect.That(t, have.status == cli.StatusOK, "want status 0, have %+v", have)
	for _, addr := range cluster.Addrs {
		expect.That(t, strings.Contains(have.out, "redis: "+addr+" answers in "), "want %s among the nodes, have\n%s", addr, have.out)
	}
}

// All that a Redis may tell is a check of the doctor.
func TestTraits(t *testing.T) {
	t.Parallel()
	at := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru", "--appendonly", "yes", "--appendfsync", "no")
	findings, err := queue.CheckRedis(t.Context(), at.Client(t))
	expect.Need(t, err == nil && len(findings) == 2, "want two findings, have %+v, %v", findings, err)
	have := runIn(t.Context(), []string{"SIDING_REDIS_ADDRS=" + at.Addr}, "", "doctor", "--json")
	var d diagnosis
	if err := json.Unmarshal([]byte(have.out), &d); err != nil || have.status != exitTrouble {
		t.Fatalf("want a fault, have %+v, %v", have, err)
	}
	wantFound(t, d, "eviction", faulty, "volatile-lru")
	wantFound(t, d, "persistence", warning, "appendfsync no")
	wantFound(t, d, "servers", warning, "no server runs")
	wantFound(t, d, "redis", ok, " ms, version ")
}

// A Redis that refuses writes is named first. Servers may look as if they were dead, and nothing is said of an upkeep that nobody owes.
func TestDoctorOfARedisThatRefusesWrites(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	b.enqueue(t, "pends", "order:1")
	expect.OK(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	d, status := answer[diagnosis](t, b, "doctor")
	expect.That(t, status == exitTrouble, "want a fault, have status %d", status)
	wantFound(t, d, "writes", faulty, "memory ")
	for _, name := range []string{"servers", "queues"} {
		for _, c := range d.Checks {
			expect.That(t, c.Check != name || strings.Contains(c.Do, "first have Redis take writes"), "%s: want Redis before the workers, have %+v", name, c)
		}
	}
	expect.That(t, !slices.ContainsFunc(d.Checks, func(c check) bool { return c.Check == "upkeep" }), "want no upkeep without servers, have %+v", d.Checks)
	expect.OK(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	d, _ = answer[diagnosis](t, b, "doctor")
	wantFound(t, d, "writes", ok, "Redis takes writes")
}

// Servers that have other settings are named with both values. So is lockctl itself, if it looks for other locks.
func TestDoctorServersThatDisagree(t *testing.T) {
	t.Parallel()
	server := func(pid int, prefix, ttl string) *taskredis.ServerInfo {
		return &taskredis.ServerInfo{Host: "web", PID: pid, Queues: map[string]int{"default": 1}, Terms: &taskredis.Terms{Prefix: prefix, Store: "the Redis of the tasks", TTL: ttl}}
	}
	for want, servers := range map[string][]*taskredis.ServerInfo{
		"ok: the servers of each queue have the same locks, limits and policies": {server(1, `"lock:"`, "15s"), server(2, `"lock:"`, "15s")},
		`fault: lock.prefix differs among the servers of default: "b:" on web (pid 2); "lock:" on web (pid 1)` + "\n" +
			`warning: lock.prefix is "b:" on web (pid 2), and "lock:" here`: {server(1, `"lock:"`, "15s"), server(2, `"b:"`, "15s")},
		"warning: lock.ttl differs among the servers of default: 15s on web (pid 1); 20s on web (pid 2)": {server(1, `"lock:"`, "15s"), server(2, `"lock:"`, "20s")},
	} {
		a, _, _ := fakeApp(&fake{})
		x := &examination{app: a, connection: &connection{settings: config.Default(), published: func(context.Context) ([]*taskredis.ServerInfo, error) { return servers, nil }}}
		expect.OK(t, x.agreed(t.Context()))
		var have []string
		for _, c := range x.checks {
			have = append(have, string(c.Status)+": "+c.Found)
		}
		expect.That(t, strings.Join(have, "\n") == want, "want\n%s\nhave\n%s", want, strings.Join(have, "\n"))
	}
}
