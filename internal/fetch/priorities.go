package fetch

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// mostQueues is how many queues the end of an attempt asks for the next task at most.
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

// draw returns the queues in the order in which asynq would ask them, most of them at most. If asynq
// has asked one of them already, that is left out.
func (p *priorities) draw(most int, asked string) []string {
	left := slices.DeleteFunc(slices.Clone(p.ordered), func(queue string) bool { return queue == asked })
	if p.strict || len(left) < 2 {
		return left[:min(len(left), most)]
	}
	total := 0
	for _, queue := range left {
		total += p.weights[queue]
	}
	var drawn []string
	for len(left) > 0 && len(drawn) < most {
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
