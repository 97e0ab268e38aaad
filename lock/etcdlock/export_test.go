package etcdlock

import "time"

// Age has d pass for what s knows of its sessions.
func Age(s *Store, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.swept = s.swept.Add(-d)
	for _, ses := range s.held {
		ses.until = ses.until.Add(-d)
	}
}

// Held is how many sessions s knows that may hold a lock.
func Held(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(len(s.held), len(s.owners))
}
