package queue

import (
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/engine"
)

// For tests of the names and places of shards.
var (
	ShardName   = shardName
	ShardQueues = shardQueues
	ShardOf     = func(queue string, n int) func(key string) string {
		s := newSharding(map[string]int{queue: n})
		return func(key string) string { return s.shardOf(queue, key) }
	}
	SlotOf = func(name string) int { return int(slotOf(0, name)) }
)

// Tuned is what NewServer makes of a connection's options.
var Tuned = tuned

// ClientOf returns the client of a server.
func ClientOf(s *Server) redis.UniversalClient { return s.rdb }

// EngineOf returns the configuration of a server's engine.
func EngineOf(s *Server) (engine.Config, error) { return s.engineConfig(nil) }
