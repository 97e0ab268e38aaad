package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// far is a long way, which no query without a network takes.
const far = 10 * time.Millisecond

// TestNetwork runs two contenders with a delay, very small. All that is written says so.
func TestNetwork(t *testing.T) {
	t.Parallel()
	proc.Find(t, "redis-server", "redis-server")
	var out, log strings.Builder
	args := []string{
		"-rtt", far.String(), "-json", "-rounds", "1", "-scale", "0.01", "-limit", "10s", "-scenarios", "H",
		"-contenders", "siding,asynq",
	}
	expect.OK(t, run(t.Context(), args, &out, &log))
	if !strings.Contains(log.String(), "network: 10ms more for each round trip; Redis answers in ") {
		t.Errorf("want the setting in the head, have\n%s", log.String())
	}
	tried := make(map[string]float64)
	for _, l := range readJSON(t, out.String()) {
		expect.That(t, l.RTT == 10, "want 10 ms in each line, have %+v", l)
		if l.Case == emptyQuery && l.Contender == "Redis" {
			tried[l.Figure] = l.Median
		}
	}
	expect.That(t, tried["without the network"] > 0 && tried["with it"] >= 10, "want 10 ms added, have %v", tried)
}

// TestAroundTheNetwork: a contender whose tasks start sooner than the delay permits makes
// the program fail.
func TestAroundTheNetwork(t *testing.T) {
	t.Parallel()
	if _, _, err := measured(t, slow(false), far); err == nil || !strings.Contains(err.Error(), "slow, small: task 0 has started 1ns after it was enqueued") {
		t.Errorf("want it noticed, have %v", err)
	}
}

// TestPostgresBehindProxy: contenders reach the database that they reached on its socket.
func TestPostgresBehindProxy(t *testing.T) {
	t.Parallel()
	direct := backend.Postgres("postgres:///db1?host=%2Ftmp%2Fpg&user=postgres")
	if network, addr, err := direct.Listens(); network != "unix" || addr != "/tmp/pg/.s.PGSQL.5432" || err != nil {
		t.Errorf("want its socket, have %s %s, %v", network, addr, err)
	}
	behind := expect.Value(direct.At("127.0.0.1:12345"))(t)
	if have, want := behind.Address(), "postgres:///db1?host=127.0.0.1&port=12345&sslmode=disable&user=postgres"; have != want {
		t.Errorf("want %s, have %s", want, have)
	}
	if network, addr, err := behind.Listens(); network != "tcp" || addr != "127.0.0.1:12345" || err != nil {
		t.Errorf("want the proxy, have %s %s, %v", network, addr, err)
	}
}

// TestNoNetwork: without -rtt nothing lies between, and the head says so.
func TestNoNetwork(t *testing.T) {
	t.Parallel()
	proc.Find(t, "redis-server", "redis-server")
	o, _, err := parse([]string{"-contenders", "siding", "-scenarios", "hot"}, io.Discard, io.Discard)
	expect.OK(t, err)
	b := expect.Value(newBench(t.Context(), o, io.Discard))(t)
	defer b.close()
	near := backend.Redis("127.0.0.1:1")
	have, closeLink, err := b.network.link(t.Context(), near)
	expect.Need(t, err == nil && have == near, "want the server itself, have %v, %v", have, err)
	closeLink()
	var head strings.Builder
	if err := b.writeSetting(t.Context(), &head); err != nil || !strings.Contains(head.String(), "network: none") {
		t.Errorf("want no network in the head, have %s, %v", head.String(), err)
	}
}
