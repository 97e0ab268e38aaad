// Package inspect reads the state of locks, wait queues and guarded tasks: who holds what, who
// waits, and why a task does not run.
//
// An [Inspector] changes nothing in Redis. It works on one Redis, behind Sentinel, in a Cluster, with
// shards, and with locks on an external store. What a call costs depends on the question, and not on
// how many tasks wait. No call sends KEYS, and only [Inspector.Scan] sends SCAN.
//
// No answer has the token of a lock.
package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// A Config configures an [Inspector]. The zero value works for servers with the default prefix.
type Config struct {
	// Prefix is the Prefix of the servers' [lock.Config]. Defaults to "lock:".
	Prefix string
	// Resources is that of the servers' [queue.GuardConfig]. It finds the resource of a task that has
	// no [queue.HeaderResource]. Without it the resource of such a task is known only once
	// somebody waits for it.
	Resources map[string]queue.ResourceFunc
	// Zone is that of the times in the sentences of a [Verdict]. Defaults to UTC, in which all other
	// times are.
	Zone *time.Location
	// Crashes is that of the servers' [queue.Recovery]. Defaults to 3; negative for servers that
	// leave all tasks to asynq.
	Crashes int
}

// Errors of an [Inspector], for errors.Is.
var (
	// ErrUnknownTask says that no queue has a task of that id. It was never enqueued, has succeeded
	// and was not retained, or was deleted.
	ErrUnknownTask = errors.New("inspect: unknown task")
)

// An Inspector answers questions. It is safe for concurrent use.
type Inspector struct {
	rdb redis.UniversalClient
	cfg Config
}

// New returns an Inspector of the Redis of the tasks. It does not close rdb.
func New(rdb redis.UniversalClient, cfg Config) (*Inspector, error) {
	if rdb == nil {
		return nil, errors.New("inspect: redis: want a client, such as one made by queue.Redis, have none")
	}
	if _, spreads := rdb.(*redis.Ring); spreads {
		return nil, errors.New("inspect: redis: want a client of one Redis or of a Cluster, have a redis.Ring")
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, "lock:")
	cfg.Crashes = cmp.Or(cfg.Crashes, 3)
	cfg.Zone = cmp.Or(cfg.Zone, time.UTC)
	if err := (lock.Config{Prefix: cfg.Prefix}).Validate(); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	return &Inspector{rdb: rdb, cfg: cfg}, nil
}
