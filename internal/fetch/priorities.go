package fetch

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// mostQueues is how many queues one call asks for a task at most.
const mostQueues = 16

// priorities say in which order a server asks its queues.
type priorities struct {
	weights map[string]int
	strict  bool
	ordered []string // by weight, the highest first
}

func newPriorities(queues map[string]int, strict bool) *priorities {
	p := &priorities{weights: queues, strict: strict}
	p.ordered = slices.SortedFunc(maps.Keys(p.weights), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.weights[b], p.weights[a]), cmp.Compare(a, b))
	})
	return p
}

func (p *priorities) equal(other *priorities) bool {
	return p.strict == other.strict && maps.Equal(p.weights, other.weights)
}

// draw returns the queues in the order in which asynq would ask them, [mostQueues] of them at most.
func (p *priorities) draw() []string {
	if p.strict || len(p.ordered) == 1 {
		return p.ordered[:min(len(p.ordered), mostQueues)]
	}
	left, total := slices.Clone(p.ordered), 0
	for _, weight := range p.weights {
		total += weight
	}
	var drawn []string
	for len(left) > 0 && len(drawn) < mostQueues {
		at, i := rand.N(total), 0
		for at >= p.weights[left[i]] {
			at -= p.weights[left[i]]
			i++
		}
		drawn, total = append(drawn, left[i]), total-p.weights[left[i]]
		left = slices.Delete(left, i, i+1)
	}
	return drawn
}
