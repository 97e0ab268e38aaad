package lockpage

import "time"

// ObserveAt counts a hand-off, and a refusal, at a time in the past.
func ObserveAt(h *History, at time.Time, handOff time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.at(at)
	s.handOffs.add(handOff)
	s.refusals++
}

// Sums are what a History says of all its samples.
type Sums struct {
	HandOffs             int64
	Refused              int
	P50, P99             time.Duration
	Points, WithHandOffs int
}

// Read returns the sums as of now.
func Read(h *History) Sums {
	r := h.read(time.Now())
	s := Sums{HandOffs: r.handOffs, Refused: r.refused, P50: r.allP50, P99: r.allP99, Points: len(r.p50)}
	for _, v := range r.p50 {
		if v > 0 {
			s.WithHandOffs++
		}
	}
	return s
}

// SampledSince gives the pages samples of 15 minutes in which ever more waited.
func SampledSince(h *Handler, now time.Time, hot map[string]int) {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	last := sampleOf(now)
	for i := range int64(samples) {
		s := fleetSample{number: last - samples + i, hot: map[string]int{}}
		for resource, n := range hot {
			s.hot[resource] = n*int(20+i+i%7*4)/220 + int(i%3)
			s.waiting += s.hot[resource]
		}
		h.fleet.kept[s.number%int64(len(h.fleet.kept))] = s
	}
}
