package redlock_test

import (
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/lock/redlock"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	host, port, err := net.SplitHostPort(f.servers[0].Addr)
	expect.OK(t, err)
	patient := redis.NewClient(&redis.Options{Addr: f.servers[2].Addr})
	t.Cleanup(func() { _ = patient.Close() })
	otherDB := redis.NewClient(&redis.Options{Addr: f.servers[0].Addr, DB: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = otherDB.Close() })
	a, b, c := f.admins[0], f.admins[1], f.admins[2]
	away := clientOf(t, "127.0.0.1:1")
	replica := redistest.Start(t, "--replicaof", host, port).Client(t)
	cluster := redistest.Start(t, "--cluster-enabled", "yes").Client(t)
	secret := clientOf(t, redistest.Start(t, "--requirepass", "secret").Addr)
	var none redlock.Config
	for _, tc := range []struct {
		name  string
		nodes []*redis.Client
		cfg   redlock.Config
		want  string // "" for none
	}{
		{"two nodes", []*redis.Client{a, b}, none, `nodes: want 3 or more, as of fewer none may fail, have 2$`},
		{"no client", []*redis.Client{a, nil, c}, none, `node 2: want a client, have nil$`},
		{"no deadlines", []*redis.Client{a, b, patient}, none, `node 3 \(.*\): want ContextTimeoutEnabled`},
		{"one client twice", []*redis.Client{a, b, a}, none, `node 3 \(.*\): want a server of its own, have that of node 1 `},
		{"two addresses of one", []*redis.Client{a, b, clientOf(t, net.JoinHostPort("localhost", port))}, none, `node 3 \(localhost:\d+\): want a server of its own, have that of node 1 \(127`},
		{"two databases of one", []*redis.Client{a, b, otherDB}, none, `node 3 \(.*\): want a server of its own, have that of node 1 `},
		{"a replica", []*redis.Client{replica, b, c}, none, `node 1 \(.*\): want a master, have a slave$`},
		{"a part of a cluster", []*redis.Client{a, cluster, c}, none, `node 2 \(.*\): want a single server, have one in cluster mode$`},
		{"no password", []*redis.Client{a, b, c, secret}, none, `node 4 \(.*\): NOAUTH `},
		{"two of three away", []*redis.Client{a, away, clientOf(t, "127.0.0.1:2")}, none, `1 of 3 nodes voted, of which 2 have to agree: node 2 \(127.0.0.1:1\): .* node 3 \(127.0.0.1:2\): `},
		{"a node timeout too short", []*redis.Client{a, b, c}, redlock.Config{NodeTimeout: time.Microsecond}, `node timeout: want 1ms to 10s, have 1µs$`},
		{"a node timeout too long", []*redis.Client{a, b, c}, redlock.Config{NodeTimeout: time.Minute}, `node timeout: want 1ms to 10s, have 1m0s$`},
		{"a restart delay too long", []*redis.Client{a, b, c}, redlock.Config{RestartDelay: 25 * time.Hour}, `restart delay: want NoRestartDelay or 0 to 24h, have 25h0m0s$`},

		{"three", []*redis.Client{a, b, c}, none, ""},
		{"one of four away", []*redis.Client{a, b, c, away}, none, ""},
		{"one of three away", []*redis.Client{a, away, c}, none, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			store, err := redlock.New(ctxOf(t), tc.nodes, tc.cfg)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("want no error, have %v", err)
			case tc.want != "" && (err == nil || store != nil || !regexp.MustCompile(`^redlock: `+tc.want).MatchString(err.Error())):
				t.Errorf("want an error like %q, have %v", tc.want, err)
			}
		})
	}
}

// TestSameServerBehindAnotherAddress that was out of reach at first: it never has two votes.
func TestSameServerBehindAnotherAddress(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 4)
	clients := []*redis.Client{clientOf(t, f.servers[0].Addr), clientOf(t, f.servers[1].Addr), clientOf(t, f.servers[2].Addr)}
	var proxies []*locktest.Proxy
	for range 2 {
		proxy := locktest.NewProxy(t, f.servers[2].Addr)
		proxy.BlackHole(true)
		proxies, clients = append(proxies, proxy), append(clients, clientOf(t, proxy.Addr))
	}
	store, err := redlock.New(t.Context(), clients, patient)
	expect.OK(t, err)
	for _, proxy := range proxies {
		proxy.BlackHole(false)
	}
	locker := lockerOn(t, store, lock.Config{})
	lease := f.take(locker) // by three servers of three
	// Which of its three answers is counted, of which one was yes, is left to chance.
	err = lease.Release(t.Context())
	expect.That(t, !errors.Is(err, lock.ErrLost), "release: want no loss, have %v", err)
	f.wantFree()
	f.servers[1].Kill()
	wantBroken(t, "acquire by two servers that are four nodes", expect.Err(locker.Acquire(t.Context(), f.Name(), nil)))
	f.wantFree(0, 2, 3)
}

// TestLeastRights are those that the documentation asks for.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	var clients []*redis.Client
	for i, admin := range f.admins {
		expect.OK(t, admin.Do(t.Context(), "ACL", "SETUSER", "locks", "on", "nopass", "resetchannels", "~lock:*", "-@all",
			"+eval", "+evalsha", "+get", "+set", "+del", "+pttl", "+pexpire", "+info").Err())
		client := redis.NewClient(&redis.Options{Addr: f.servers[i].Addr, Username: "locks", Password: "any", ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	store := expect.Value(redlock.New(t.Context(), clients, patient))(t)
	locker := lockerOn(t, store, lock.Config{})
	lease := f.take(locker)
	expect.OK(t, lease.Renew(t.Context()))
	_ = f.wantBusy(lockerOn(t, store, lock.Config{}))
	f.release(lease)
	f.wantFree()
}

// toldOtherwise has the INFO of a server say other lines: the first of a pair is replaced by the second.
func toldOtherwise(lines ...string) redistest.Hook {
	return func(cmds []redis.Cmder, send func(...redis.Cmder) error) error {
		err := send(cmds...)
		if info, ok := cmds[0].(*redis.StringCmd); ok && info.Name() == "info" && err == nil {
			info.SetVal(strings.NewReplacer(lines...).Replace(info.Val()))
		}
		return err
	}
}

// TestOtherServers are compatible with Redis, and tell what they are in other words, or not at all.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	mode := "redis_mode:standalone"
	if info := f.admins[1].Info(t.Context(), "server").Val(); !strings.Contains(info, mode) {
		mode = "server_mode:standalone" // the tests run on Valkey
	}
	for name, tc := range map[string]struct {
		lines []string
		want  string // "" for none
	}{
		"Valkey":               {[]string{mode, "server_name:valkey\r\nserver_mode:standalone"}, ""},
		"no mode":              {[]string{mode + "\r\n", ""}, ""},
		"no role":              {[]string{"role:master\r\n", ""}, ""},
		"a primary":            {[]string{"role:master", "role:primary"}, ""},
		"Valkey in a cluster":  {[]string{mode, "server_mode:cluster"}, "want a single server, have one in cluster mode"},
		"Valkey as a sentinel": {[]string{mode, "server_mode:sentinel"}, "want a single server, have one in sentinel mode"},
		"a replica":            {[]string{"role:master", "role:replica"}, "want a master, have a replica"},
		"no run":               {[]string{"run_id:", "other:"}, "want a run_id in its INFO, have none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := clientOf(t, f.servers[1].Addr)
			other.AddHook(toldOtherwise(tc.lines...))
			_, err := redlock.New(ctxOf(t), []*redis.Client{f.admins[0], other, f.admins[2]}, redlock.Config{})
			expect.That(t, (tc.want != "" || err == nil) && (tc.want == "" || err != nil && strings.HasSuffix(err.Error(), "): "+tc.want)),
				"want %q, have %v", tc.want, err)
		})
	}
}
