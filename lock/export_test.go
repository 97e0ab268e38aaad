package lock

import "time"

// Start returns the time from which the lease's deadline counts, and SetStart changes it.
func (l *Lease) Start() time.Time { return l.tenure.start }

// SetStart is for a time that no clock of this process would give.
func (l *Lease) SetStart(start time.Time) {
	l.tenure.mu.Lock()
	defer l.tenure.mu.Unlock()
	l.tenure.start = start
}

// Desks returns how many resources the process keeps something of.
func (l *Locker) Desks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.desks)
}
