package engine

import "sync/atomic"

// The goroutines of a loop run functions. Those that have run one wait for the next, as many as there are slots, until the loop ends:
// in a new one the stack would have to grow first, in the code of go-redis or the user, for a fifth of what a task costs this process.
type goroutines struct {
	most    int64           // that wait
	done    <-chan struct{} // closed when the loop has ended
	next    chan func()     // to one that waits
	waiting atomic.Int64    // how many do
}

// run has one of them run f, and does not wait for that.
func (g *goroutines) run(f func()) {
	select {
	case g.next <- f:
		return
	default:
	}
	go func() {
		for {
			f()
			f = nil // with all that it refers to, such as a task
			if g.waiting.Add(1) > g.most {
				g.waiting.Add(-1)
				return
			}
			select {
			case f = <-g.next:
				g.waiting.Add(-1)
			case <-g.done:
				return
			}
		}
	}()
}
