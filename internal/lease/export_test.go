package lease

import "time"

// StartedAt returns the time from which the lease's deadline counts, and SetStart changes it.
func (l *Lease) StartedAt() time.Time {
	l.holding.mu.Lock()
	defer l.holding.mu.Unlock()
	return l.holding.start
}

// SetStart is for a time that no clock of this process would give.
func (l *Lease) SetStart(start time.Time) {
	l.holding.mu.Lock()
	defer l.holding.mu.Unlock()
	l.holding.start = start
}

// Works returns how many contexts a lease knows.
func (l *Lease) Works() int {
	l.holding.mu.Lock()
	defer l.holding.mu.Unlock()
	return len(l.works)
}
