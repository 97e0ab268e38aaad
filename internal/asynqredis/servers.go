package asynqredis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
)

// Each of asynq's servers writes an entry about itself every 5 s, which lasts for 10 s. In the same step
// a Hook adds to the entry that the server is guarded.
const (
	// serversKey has the keys of the entries, by when they expire.
	serversKey  = "asynq:servers"
	entryKeys   = "asynq:servers:"
	workersKeys = "asynq:workers:"
)

// Field numbers of asynq's ServerInfo, which is the entry.
const (
	fieldHost     = 1
	fieldPID      = 2
	fieldServerID = 3
	fieldQueues   = 5
	// Two fields are not asynq's. asynq skips them when it reads the entry.
	fieldGuarded  = 7008
	fieldVersions = 7009
)

// MarkGuarded marks the entry of a server as guarded, if a script with these keys and arguments
// writes one. It adds the versions that the server runs, in words. MarkGuarded changes argv.
func MarkGuarded(keys, argv []any, versions string) {
	if len(keys) != 2 || len(argv) < 2 {
		return
	}
	key, _ := keys[0].(string)
	workers, _ := keys[1].(string)
	server, ok := strings.CutPrefix(key, entryKeys)
	if !ok || workers != workersKeys+server {
		return
	}
	if entry, ok := argv[1].([]byte); ok {
		marked := []byte(withNumber(string(entry), fieldGuarded, 1))
		argv[1] = protowire.AppendString(protowire.AppendTag(marked, fieldVersions, protowire.BytesType), versions)
	}
}

// A Server is one of asynq's, by its entry.
type Server struct {
	Host    string
	PID     int
	ID      string
	Queues  []string
	Guarded bool // its connection has a Hook, of a release that says so
	// Versions are those that a guarded server runs, in words; "" for a release that does not say.
	Versions string
}

func (s Server) String() string { return fmt.Sprintf("%s (pid %d)", s.Host, s.PID) }

// clocksApart is by how much the clocks of servers may differ. Each server uses its own clock for the
// end of its entry.
const clocksApart = time.Minute

// Servers lists the live servers. A server that was killed or cut off is listed for 10 s more.
func Servers(ctx context.Context, rdb redis.UniversalClient) ([]Server, error) {
	keys, err := rdb.ZRangeByScore(ctx, serversKey, &redis.ZRangeBy{
		Min: strconv.FormatInt(time.Now().Add(-clocksApart).Unix(), 10), Max: "+inf",
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("asynqredis: list servers: %w", err)
	}
	pipe := rdb.Pipeline()
	entries := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		entries[i] = pipe.Get(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // each entry has its own error
	var servers []Server
	for _, entry := range entries {
		encoded, err := entry.Bytes()
		if errors.Is(err, redis.Nil) {
			continue // it has expired
		}
		if err != nil {
			return nil, fmt.Errorf("asynqredis: list servers: %w", err)
		}
		if s, err := serverOf(encoded); err == nil { // else asynq does not list it either
			servers = append(servers, s)
		}
	}
	return servers, nil
}

// serverOf reads an entry.
func serverOf(entry []byte) (s Server, err error) {
	err = fields(entry, func(num protowire.Number, typ protowire.Type, value []byte) {
		switch {
		case typ == protowire.VarintType && num == fieldPID:
			n, _ := protowire.ConsumeVarint(value)
			s.PID = int(n) //nolint:gosec // asynq's is an int32
		case typ == protowire.VarintType && num == fieldGuarded:
			n, _ := protowire.ConsumeVarint(value)
			s.Guarded = n == 1
		case typ != protowire.BytesType:
		case num == fieldHost:
			s.Host = textOf(value)
		case num == fieldServerID:
			s.ID = textOf(value)
		case num == fieldVersions:
			s.Versions = textOf(value)
		case num == fieldQueues:
			pair, _ := protowire.ConsumeBytes(value) // a map is a list of pairs
			if name, err := field(pair, 1); err == nil {
				s.Queues = append(s.Queues, name)
			}
		}
	})
	return s, err
}
