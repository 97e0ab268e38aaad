package chaos

import (
	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/queue"
)

const partPrefix = "part:"

// parts are the resources that no task needs alone.
func parts() []string { return numbered(partPrefix, 4) }

// Sets are what those tasks need: any two of the parts, or all.
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

// IsSet reports whether a task needs several resources.
func IsSet(resource string) bool { return len(store.Names(resource)) > 1 }

// allParts stands for the parts together. A single one may stand idle while the first of its line waits for another one. But as
// long as any task waits for some, one of them is in use: the task that came first of all lacks one that somebody has.
const allParts = partPrefix + "*"

// idleAs returns the name under which is measured how long nobody uses a resource that tasks wait for.
func idleAs(resource string) string {
	if IsSet(resource) {
		return allParts
	}
	return resource
}

// resources returns what a run has in use, and allParts if that is a set of them.
func (r Run) resources() []string {
	switch {
	case r.Resource == "":
		return nil
	case IsSet(r.Resource):
		return append(store.Names(r.Resource), allParts)
	default:
		return []string{r.Resource}
	}
}
