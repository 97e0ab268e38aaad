package queue

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sidingq/siding/internal/taskredis"
)

// ErrOtherLocks says that a live server of one of the queues keeps its locks under another prefix or in another
// [ServerConfig.Store]. The error names both servers and values.
var ErrOtherLocks = errors.New("queue: a server of the same queues has other locks")

// terms returns what the servers of a queue should have alike.
func (s *Server) terms() taskredis.Terms {
	l := s.locks.Config()
	t := taskredis.Terms{
		Prefix: strconv.Quote(l.Prefix), Store: "the Redis of the tasks", TTL: l.TTL.String(),
		Limits: make(map[string]string), Policies: make(map[string]string),
	}
	if s.cfg.Store != nil {
		t.Store = strings.TrimPrefix(fmt.Sprintf("%T", s.cfg.Store), "*")
	}
	for pattern, limit := range s.cfg.Limits {
		rule := limit.rule()
		text := []string{strconv.Itoa(rule.Limit)}
		for _, rate := range rule.Rates {
			text = append(text, fmt.Sprintf("%d/%v", rate.Starts, rate.Period))
		}
		t.Limits[pattern] = strings.Join(text, " ")
	}
	for kind, policy := range s.cfg.Policies {
		if text := policy.text(); text != (Policy{}).text() { // that of all other kinds
			t.Policies[kind] = text
		}
	}
	return t
}
