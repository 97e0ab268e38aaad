package queue

import "github.com/redis/go-redis/v9"

// For tests of the names and places of shards.
var (
	ShardName   = shardName
	ShardQueues = shardQueues
)

// Tuned is what NewServer makes of a connection's options.
var Tuned = tuned

// ClientOf returns the client of a server.
func ClientOf(s *Server) redis.UniversalClient { return s.rdb }
