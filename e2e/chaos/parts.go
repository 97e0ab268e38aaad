package chaos

import (
	"strings"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/queue"
)

const partPrefix = "part:"

// parts are resources of which each task needs several at once.
func parts() []string { return numbered(partPrefix, 4) }

// Sets are what the tasks of parts want: any two of them, or all.
func Sets() []string {
	all := parts()
	sets := []string{queue.AllOf(all...)}
	for i, one := range all {
		for _, other := range all[i+1:] {
			sets = append(sets, queue.AllOf(one, other))
		}
	}
	return sets
}

// IsSet reports whether a resource is one of those.
func IsSet(resource string) bool { return strings.HasPrefix(resource, "\n") }

// anyPart stands for all the parts: while tasks wait for some of them, somebody has one, as the first of all who wait lacks none
// that nobody has.
const anyPart = partPrefix + "*"

// lineOf returns as what a resource may stand idle.
func lineOf(resource string) string {
	if IsSet(resource) {
		return anyPart
	}
	return resource
}

// of returns the resources that a run holds, and anyPart.
func (r Run) of() []string {
	if IsSet(r.Resource) {
		return append(store.Names(r.Resource), anyPart)
	}
	return []string{r.Resource}
}
