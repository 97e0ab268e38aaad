// Package inspect reads the state of locks, of those who wait for them, and of guarded tasks: who holds what, who
// waits, and why a task does not run.
//
// An [Inspector] changes nothing in Redis. It works with one Redis, Sentinel, a Cluster, shards, and
// locks in an external store. However many tasks wait, only [Inspector.Scan] reads all keys. The others
// read running tasks, servers, counters, and bounded numbers of locks and waiting tasks. No call
// sends KEYS.
//
// No answer has the token of a lock.
package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/lockredis"
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A Config configures an [Inspector]. The zero value works for servers with the default prefix.
type Config struct {
	// Prefix is the Prefix of the servers' [lock.Config]. Defaults to "lock:".
	Prefix string
	// Resources are the Resources of the servers' [queue.ServerConfig]. They find the resource of a
	// task without [queue.HeaderResource], which otherwise is known only once the task has come to it.
	Resources map[string]queue.ResourceFunc
	// Zone is that of the times in the sentences of a [Verdict]. Defaults to UTC, in which all other
	// times are.
	Zone *time.Location
	// Crashes is that of the servers' [queue.Recovery]. Defaults to 3; negative for none.
	Crashes int
}

// Errors of an [Inspector], for errors.Is.
var (
	// ErrUnknownTask says that no queue has a task with that id. The task was never enqueued, has
	// succeeded and was not retained, or was deleted. Retain tasks of which you will ask.
	ErrUnknownTask = errors.New("inspect: unknown task")
)

// An Inspector reads locks, tasks and servers. It is safe for concurrent use. [New] makes it.
type Inspector struct {
	rdb redis.UniversalClient
	cfg Config
}

// New returns an Inspector. rdb is a client of the tasks' Redis; the caller closes it. An error names
// what is wrong with rdb or cfg. New does not connect to Redis.
func New(rdb redis.UniversalClient, cfg Config) (*Inspector, error) {
	if lockredis.None(rdb) {
		return nil, fmt.Errorf("inspect: redis: want a client, such as one made by queue.Redis, have %s", lockredis.Nothing(rdb))
	}
	if _, spreads := rdb.(*redis.Ring); spreads {
		return nil, errors.New("inspect: redis: want a client of one Redis or of a Cluster, have a redis.Ring")
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, store.DefaultPrefix)
	cfg.Crashes = cmp.Or(cfg.Crashes, 3)
	cfg.Zone = cmp.Or(cfg.Zone, time.UTC)
	servers := queue.ServerConfig{Lock: lock.Config{Prefix: cfg.Prefix}, Resources: cfg.Resources}
	if err := servers.Validate(); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	return &Inspector{rdb: rdb, cfg: cfg}, nil
}
