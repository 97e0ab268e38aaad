package redisreply_test

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/redisreply"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// TestTransient: the texts are those of Redis 7, and of 8 where it has others.
func TestTransient(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"ASK 3999 127.0.0.1:6381": true,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL":                                                  true,
		"CLUSTERDOWN The cluster is down":                                                                                     true,
		"ERR Script attempted to access a non local key in a cluster node":                                                    true,
		"ERR Script attempted to execute a command while the cluster is down":                                                 true,
		"ERR Unable to execute command 'exists' in script because undeclared keys were accessed during rehashing of the slot": true,
		"ERR max number of clients reached":                                                                                   true,
		"ERR max number of clients + cluster connections reached":                                                             false,
		"LOADING Redis is loading the dataset in memory":                                                                      true,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set":                                             true,
		"MOVED 3999 127.0.0.1:6381":                                                                                           true,
		"NOREPLICAS Not enough good replicas to write.":                                                                       true,
		"READONLY You can't write against a read only replica.":                                                               true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                             true,
		"UNBLOCKED force unblock from blocking operation, instance state changed":                                             true,
		"ERR unknown command 'EVALSHA'":                                                                                       false,
		"CROSSSLOT Keys in request don't hash to the same slot":                                                               false,
		"EXECABORT Transaction discarded because of previous errors.":                                                         false,
		"MISCONF Redis is configured to save RDB snapshots, but it's unable to":                                               true,
		"NOAUTH Authentication required.":                                                                                     false,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                    false,
		"NOSCRIPT No matching script. Please use EVAL.":                                                                       false,
		"OOM command not allowed when used memory > 'maxmemory'.":                                                             true,
		"WRONGPASS invalid username-password pair or user is disabled.":                                                       false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                                   false,
		"LOADINGS is no code of Redis":                                                                                        false,
		"BUSYGROUP Consumer Group name already exists":                                                                        false,
		"redis: nil": false,
	} {
		err := fmt.Errorf("lock: acquire a: %w", answer(text))
		if have := redisreply.Transient(err); have != want {
			t.Errorf("%s: want %t, have %t", text, want, have)
		}
		expect.That(t, redisreply.Answered(err), "%s: want an answer", text)
		ofConnection := strings.HasPrefix(text, "NOAUTH ") || strings.HasPrefix(text, "WRONGPASS ")
		expect.Equal(t, "whether it is of the connection: "+text, redisreply.OfConnection(err), ofConnection)
	}
	if err := errors.New("LOADING"); redisreply.Transient(err) || redisreply.Answered(err) || redisreply.OfConnection(err) {
		t.Error("want no answer of Redis in an error that is none")
	}
}

// A time that is too long is the longest there is, and not one in the past.
func TestDuration(t *testing.T) {
	t.Parallel()
	const longest = math.MaxInt64
	for name, c := range map[string][2]time.Duration{
		"short": {redisreply.Duration(1500, time.Microsecond), 1500 * time.Microsecond},
		"none":  {redisreply.Duration(-1, time.Millisecond), -time.Millisecond},
		"long":  {redisreply.Duration(1e17, time.Microsecond), longest},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: want %v, have %v", name, c[1], c[0])
		}
	}
}

// TestMaxClients meets the one without a code on a server. A client may see a broken connection
// instead, as that follows.
func TestMaxClients(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxclients", "1")
	var dialer net.Dialer
	for {
		conn := expect.Value(dialer.DialContext(t.Context(), "tcp", server.Addr))(t)
		defer conn.Close()
		expect.OK(t, expect.Err(conn.Write([]byte("PING\r\n"))))
		line := expect.Value(bufio.NewReader(conn).ReadString('\n'))(t)
		if text, refused := strings.CutPrefix(line, "-"); refused {
			if err := answer(strings.TrimSpace(text)); !redisreply.Transient(err) {
				t.Errorf("want an answer that passes, have %v", err)
			}
			return
		}
	}
}
