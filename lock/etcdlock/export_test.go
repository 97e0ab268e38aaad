package etcdlock

import "time"

// Age has d pass for what s knows of its sessions.
func Age(s *Store, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.swept = s.swept.Add(-d)
	for _, ses := range s.waiting {
		if !ses.left.IsZero() {
			ses.left = ses.left.Add(-d)
		}
	}
	for _, ses := range s.held {
		ses.until = ses.until.Add(-d)
	}
}

// Known is how many sessions s knows.
func Known(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(len(s.held), len(s.owners)) + len(s.waiting)
}
