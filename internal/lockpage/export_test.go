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
