// Package contention keeps a profile, for go tool pprof, of the time for which tasks have waited for
// locks: by the kind of the waiting task and the class of the resource.
package contention

import (
	"maps"
	"sync"
	"time"

	"github.com/sidingq/siding/internal/labels"
	"github.com/sidingq/siding/queue"
)

// limit is how many sorts of wait a profile has. Further sorts are one, whose two words are
// [labels.Other].
const limit = 1000

// A Profile sums up the waits that have ended since its start. It is safe for concurrent use. [New]
// makes it.
type Profile struct {
	start time.Time

	mu    sync.Mutex
	waits map[wait]total
}

// A wait is a sort of wait.
type wait struct{ class, kind string }

// A total is the number of waits of a sort, and their time, summed up.
type total struct {
	waits int64
	delay time.Duration
}

// New returns an empty profile that starts now.
func New() *Profile {
	return &Profile{start: time.Now(), waits: make(map[wait]total)}
}

// Observe adds the wait of a task that has acquired its lock.
func (p *Profile) Observe(e queue.Event) {
	if e.Kind != queue.EventAcquired || e.Waited <= 0 {
		return
	}
	w := wait{labels.Class(e.Resource), e.TaskKind}
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, known := p.waits[w]
	if !known {
		if len(p.waits) < limit {
			w = wait{labels.Word(w.class), labels.Word(w.kind)}
		} else {
			w = wait{labels.Other, labels.Other}
		}
		sum = p.waits[w]
	}
	sum.waits++
	sum.delay += e.Waited
	p.waits[w] = sum
}

// now returns the waits so far.
func (p *Profile) now() map[wait]total {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.waits)
}

// since returns the waits of now without those of before. It changes now.
func since(before, now map[wait]total) map[wait]total {
	for w, sum := range now {
		sum.waits -= before[w].waits
		sum.delay -= before[w].delay
		if sum.waits == 0 {
			delete(now, w)
			continue
		}
		now[w] = sum
	}
	return now
}
