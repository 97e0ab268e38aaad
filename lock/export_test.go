package lock

import "github.com/sidingq/siding/internal/lease"

// Inner returns what the renewal refers to.
func (l *Lease) Inner() *lease.Lease { return l.held }

// Contenders returns of how many resources the process keeps something.
func (l *Locker) Contenders() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.contenders)
}
