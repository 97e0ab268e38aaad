package redlock

import (
	"time"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/lock"
)

type (
	Voter = voter
	Vote  = vote
)

// Yes is a vote for who asks, by this run of a server.
func Yes(run string) Vote { return vote{run: run, yes: true} }

// No is a vote for another, who has the lock.
func No(run, holder string, left time.Duration) Vote {
	return vote{run: run, holder: holder, left: left}
}

// NewOf returns a store on voters that are no servers.
func NewOf(cfg Config, voters ...Voter) lock.Store {
	return &majority{nodes: named(voters), cfg: cfg.withDefaults()}
}

// Granted decides a request by what each node said.
func Granted(votes []Vote, errs []error) (store.Result, error) {
	answers := make([]answer[vote], len(votes))
	for i := range votes {
		answers[i] = answer[vote]{votes[i], errs[i]}
	}
	return count(named(make([]Voter, len(votes))), answers).granted()
}

func named(voters []Voter) []node {
	nodes := make([]node, len(voters))
	for i, v := range voters {
		nodes[i] = node{voter: v, name: string(rune('A' + i))}
	}
	return nodes
}

// ErrReply is that a script was answered by what is no vote.
var ErrReply = errReply

// Uptime is how long a server has to have run, in whole seconds as it counts them.
func Uptime(delay time.Duration) int64 { return uptime(delay) }
