package lockpage

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// interest is how long the fleet is sampled after somebody has looked at a page.
	interest = samples * sampleTime
	// hottest is how many resources a sample names.
	hottest = 20
)

// A fleet samples how many tasks of the whole fleet wait, and for which resources. It samples only
// while somebody looks at the pages.
type fleet struct {
	source Source
	poke   chan struct{} // somebody looks at a page
	end    context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	seen time.Time // when somebody looked at a page last
	kept [samples + 1]fleetSample
}

// A fleetSample is the state of the fleet at one time.
type fleetSample struct {
	number  int64
	waiting int
	hot     map[string]int // how many wait for the hottest resources
}

// newFleet starts a goroutine that samples the fleet until close.
func newFleet(source Source) *fleet {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fleet{source: source, poke: make(chan struct{}, 1), end: cancel, ended: make(chan struct{})}
	go f.run(ctx)
	return f
}

func (f *fleet) close() {
	f.end()
	<-f.ended
}

// looked notes that somebody looks at a page.
func (f *fleet) looked() {
	f.mu.Lock()
	f.seen = time.Now()
	f.mu.Unlock()
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

// interesting reports whether somebody has looked at a page within interest.
func (f *fleet) interesting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.seen) < interest
}

func (f *fleet) run(ctx context.Context) {
	defer close(f.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if !f.interesting() {
			select {
			case <-ctx.Done():
				return
			case <-f.poke:
			}
		}
		f.sample(ctx)
		now := time.Now()
		next := time.Unix(0, (sampleOf(now)+1)*int64(sampleTime)).Add(sampleTime / 2) // in its middle, so that each sample is taken once
		timer.Reset(next.Sub(now))
	}
}

// sample asks Redis once. A sample that fails is a gap in the charts.
func (f *fleet) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := fleetSample{number: sampleOf(time.Now()), hot: map[string]int{}}
	queues, err := f.source.Queues(ctx)
	if err != nil {
		return
	}
	for _, q := range queues {
		s.waiting += q.Waiting
	}
	if s.waiting > 0 {
		list, err := f.source.Top(ctx, hottest)
		if err != nil {
			return
		}
		for _, l := range list.Locks {
			s.hot[l.Resource] = l.Waiting
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept[s.number%int64(len(f.kept))] = s
}

// A hotResource is a resource for which tasks have waited.
type hotResource struct {
	Resource string
	// Waited is the waiting time of all these tasks, summed up over the samples.
	Waited time.Duration
}

// read returns how many tasks waited in each of the last samples, the oldest first. A missing sample
// is NaN. hot are the resources of these samples, the longest wait first.
func (f *fleet) read(now time.Time) (waiting []float64, hot []hotResource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sums := map[string]time.Duration{}
	first := sampleOf(now) - samples + 1 // a sample is a state, so the last one is complete
	for number := first; number < first+samples; number++ {
		s := f.kept[number%int64(len(f.kept))]
		if s.number != number {
			waiting = append(waiting, math.NaN())
			continue
		}
		waiting = append(waiting, float64(s.waiting))
		for resource, n := range s.hot {
			sums[resource] += time.Duration(n) * sampleTime
		}
	}
	for resource, waited := range sums {
		hot = append(hot, hotResource{resource, waited})
	}
	slices.SortFunc(hot, func(a, b hotResource) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), strings.Compare(a.Resource, b.Resource))
	})
	return waiting, hot
}
