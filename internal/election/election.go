// Package election names the locks by which the servers of the same queues elect one that looks after
// these queues.
package election

import (
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Resource names the resource of an election. The server that has its lock is elected. queues may be in
// any order. recovers says whether the servers recover tasks: those that do elect one of their own.
func Resource(queues []string, recovers bool) string {
	role := "siding-sweeper:"
	if recovers {
		role = "siding-recovery:"
	}
	names := strings.Join(slices.Sorted(slices.Values(queues)), "\n")
	return role + uuid.NewSHA1(uuid.Nil, []byte(names)).String()
}
