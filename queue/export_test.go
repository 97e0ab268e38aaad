package queue

import (
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

// For tests of the names and places of shards.
var (
	ShardName   = shardName
	ShardQueues = shardQueues
)

// Outcome is what Enqueue returns after asynq's answer.
func Outcome(t Task, o *Options, err error) (Receipt, error) {
	p, perr := sharding(nil).prepare(t, o, time.Now(), "id")
	if perr != nil {
		return Receipt{}, perr
	}
	return p.outcome(err)
}

// WatchEvery has a guard look for unguarded servers more often. Call it before its servers begin.
func WatchEvery(g *Guard, every time.Duration) { g.watchEvery = every }

// GuardOf returns the guard of a server.
func GuardOf(s *Server) *Guard { return s.guard }

// AsynqConfig is what a server configures its asynq.Server with.
func AsynqConfig(s *Server) asynq.Config { return s.asynqConfig() }

// Tuned is what NewServer, Conn and NotifyingConn make of a connection's options.
var Tuned = tuned

// Clients returns the clients of a server.
func Clients(s *Server) []redis.UniversalClient { return []redis.UniversalClient{s.tasks, s.locks} }

// ReleaseUnused releases a lock that was taken with a task and is not used, and waits for that.
func ReleaseUnused(g *Guard, grant store.Grant) {
	g.releaseUnused(g.background, grant)
	g.work.Wait()
}
