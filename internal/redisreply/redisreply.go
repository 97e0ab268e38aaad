// Package redisreply says which errors of Redis are worth another try.
package redisreply

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// transient are the codes of refusals that end by themselves.
var transient = []string{
	"ASK", "TRYAGAIN", "MOVED", // a slot moves
	"BUSY",                                // a script takes long
	"CLUSTERDOWN",                         // a part of the Cluster is away
	"LOADING",                             // the data is being loaded
	"MASTERDOWN", "READONLY", "UNBLOCKED", // a failover
	"NOREPLICAS", // too few replicas are connected
}

// maxClients is the one refusal that has no code of its own.
const maxClients = "ERR max number of clients reached"

// Answered reports whether err is an answer of Redis, and not of the network or the client.
func Answered(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// Transient reports whether err is an answer of Redis that passes by itself: the same call, sent
// again later, may succeed. It is false for errors of the network, which Redis did not answer.
func Transient(err error) bool {
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	code, _, _ := strings.Cut(answer.Error(), " ")
	return slices.Contains(transient, code) || strings.HasPrefix(answer.Error(), maxClients)
}
