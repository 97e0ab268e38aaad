package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/bench/internal/backend"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// far is long enough for a busy machine to be right about it by a fifth.
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
		if l.RTT != 10 {
			t.Errorf("want 10 ms in each line, have %+v", l)
		}
		if l.Case == emptyQuery && l.Contender == "Redis" {
			tried[l.Figure] = l.Median
		}
	}
	if added := tried["with it"] - tried["without the network"]; added < 8 || added > 12 {
		t.Errorf("want 10 ms added, have %v", tried)
	}
}

// TestAroundTheNetwork: a contender whose tasks start sooner than the delay permits makes
// the program fail.
func TestAroundTheNetwork(t *testing.T) {
	t.Parallel()
	if _, _, err := measured(t, slow(false), far); err == nil || !strings.Contains(err.Error(), "slow, small: task 0 has started 1ns after it was enqueued") {
		t.Errorf("want it noticed, have %v", err)
	}
}

// scripted is a server whose empty queries take these times, one after the other. The first are
// without the network, and the others with it. The last two times hold for all further queries.
type scripted struct{ times *[]time.Duration }

func (scripted) Name() string                             { return "scripted" }
func (scripted) Address() string                          { return "" }
func (scripted) Listens() (network, addr string, _ error) { return "tcp", "127.0.0.1:1", nil }
func (s scripted) At(string) (backend.Server, error)      { return s, nil }

func (s scripted) RoundTrips(context.Context, int) ([]time.Duration, error) {
	times := *s.times
	now := times[0]
	if *s.times = times[1:]; len(times) == 2 {
		*s.times = append(*s.times, now)
	}
	return []time.Duration{now}, nil
}

// TestNetworkIsTried: the time that the proxies themselves take is subtracted, and a delay that stays
// wrong is an error.
func TestNetworkIsTried(t *testing.T) {
	t.Parallel()
	const us = time.Microsecond
	for _, tc := range []struct {
		name          string
		first, second time.Duration // with the network; 50 us without
		oneWay        time.Duration
		fails         bool
	}{
		{"right at once", 1050 * us, 1050 * us, 500 * us, false},
		{"proxies take time", 1250 * us, 1060 * us, 400 * us, false},
		{"a little too long", 1250 * us, 1250 * us, 400 * us, false},
		{"too long", 1250 * us, 1251 * us, 0, true},
		{"a little too short", 1050 * us, 850 * us, 500 * us, false},
		{"too short", 1050 * us, 849 * us, 0, true},
		{"proxies take it all", 2500 * us, 1500 * us, 0, true},
		{"proxies took it all", 2500 * us, 1050 * us, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			times := []time.Duration{50 * us, tc.first, 50 * us, tc.second}
			n, err := newNetwork(t.Context(), time.Millisecond, []backend.Server{scripted{&times}})
			if (err != nil) != tc.fails || n.oneWay["scripted"] != tc.oneWay {
				t.Errorf("want %v each way, an error: %t; have %v, %v", tc.oneWay, tc.fails, n.oneWay, err)
			}
			if tc.fails && (err == nil || !strings.Contains(err.Error(), "-rtt 1ms: scripted answers in 0.050 ms without and in ")) {
				t.Errorf("want what was measured, have %v", err)
			}
		})
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
	if err != nil || have != near {
		t.Fatalf("want the server itself, have %v, %v", have, err)
	}
	closeLink()
	var head strings.Builder
	if err := b.writeSetting(t.Context(), &head); err != nil || !strings.Contains(head.String(), "network: none") {
		t.Errorf("want no network in the head, have %s, %v", head.String(), err)
	}
}
