package fetch

import (
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

const (
	// pollTimeout is how long one call waits for a notification; see [Notifier.pollTimeout].
	pollTimeout = time.Second
	// unansweredAfter is how long after the last answer of Redis fetchers scan for themselves.
	unansweredAfter = 3 * time.Second
)

var (
	//go:embed pass_on.lua
	passOnSource string
	passOnScript = redis.NewScript(asynqredis.NotifyLua + passOnSource)
)

// A subscription listens for notifications of some queues while fetchers wait for them. The
// subscription takes each element of their notify lists for one fetcher. If no fetcher waits any
// more, the element goes to the list again, for other processes.
type subscription struct {
	queues []string
	// Guarded by the notifier's mutex:
	waiting   []*Fetcher
	listening bool
	answered  time.Time // when Redis last did
	// The goroutine that listens owns these. Notifications must not delay the next scan of the
	// queues.
	scan    time.Time
	backoff Backoff
}

// subscribe has f woken by notifications that s hears. n.mu is held.
func (n *Notifier) subscribe(s *subscription, f *Fetcher) {
	if !slices.Contains(s.waiting, f) {
		s.waiting = append(s.waiting, f)
	}
	if !s.listening {
		s.listening, s.answered = true, time.Now()
		n.done.Go(func() { n.listen(s) })
	}
}

// listen listens while fetchers wait.
func (n *Notifier) listen(s *subscription) {
	for n.awaited(s) {
		queue, err := n.receive(s, time.Until(s.scan))
		if err == nil && queue != "" && !n.wake(s, notified, queue) {
			err = n.passOn(queue)
		}
		if err == nil && !time.Now().Before(s.scan) {
			s.scan = time.Now().Add(n.interval())
			err = n.scan(s)
		}
		if err != nil {
			if s.backoff.First() && !n.closed() {
				n.logger.WarnContext(n.ctx, "notifications do not arrive: idle workers poll", "error", err)
			}
			for n.wake(s, unreachable, "") {
			}
		}
		s.backoff.After(n.ctx, err)
	}
}

// passOn leaves a notification to another process.
func (n *Notifier) passOn(queue string) error {
	return passOnScript.Run(n.ctx, n.rdb, []string{asynqredis.NotifyKey(queue)}).Err()
}

// awaited reports whether fetchers wait for s; else nobody listens any more.
func (n *Notifier) awaited(s *subscription) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(f *Fetcher) bool { return !f.expects() })
	s.listening = len(s.waiting) > 0 && !n.closed()
	return s.listening
}

// wake tells one of the fetchers that wait for s of an event, which may be of a queue; false if none waits.
func (n *Notifier) wake(s *subscription, e event, queue string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(s.waiting) > 0 {
		f := s.waiting[0]
		s.waiting = s.waiting[1:]
		if f.expects() && f.to(e) {
			f.queue = queue
			return true
		}
	}
	return false
}

// receive waits for a notification and returns its queue, "" when none came.
func (n *Notifier) receive(s *subscription, longest time.Duration) (queue string, err error) {
	args := []any{"blpop"}
	for _, queue := range s.queues {
		args = append(args, asynqredis.NotifyKey(queue))
	}
	// As a call of no special kind, so that the client's own timeout bounds it.
	longest = min(max(longest, time.Millisecond), n.pollTimeout())
	args = append(args, strconv.FormatFloat(longest.Seconds(), 'f', -1, 64))
	cmd := redis.NewStringSliceCmd(n.ctx, args...)
	err = n.rdb.Process(n.ctx, cmd)
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", err
	}
	n.mu.Lock()
	s.answered = time.Now()
	n.mu.Unlock()
	if element := cmd.Val(); len(element) == 2 {
		queue = strings.TrimSuffix(strings.TrimPrefix(element[0], "siding:{"), "}:notify")
	}
	return queue, nil
}

// pollTimeout returns how long one call may wait. That is half as long as the client waits for an
// answer, and no longer than the constant.
func (n *Notifier) pollTimeout() time.Duration {
	var patience time.Duration
	switch rdb := n.rdb.(type) {
	case *redis.Client:
		patience = rdb.Options().ReadTimeout
	case *redis.ClusterClient:
		patience = rdb.Options().ReadTimeout
	}
	if patience <= 0 {
		return pollTimeout // it waits for ever, or who knows
	}
	return min(pollTimeout, patience/2)
}

// scan wakes fetchers for the queues that have tasks.
func (n *Notifier) scan(s *subscription) error {
	keys := make([]string, len(s.queues))
	for i, queue := range s.queues {
		keys[i] = asynqredis.PendingKey(queue)
	}
	some, err := n.rdb.Exists(n.ctx, keys...).Result()
	if err != nil || some == 0 {
		return err
	}
	lengths := make([]*redis.IntCmd, len(keys))
	_, err = n.rdb.Pipelined(n.ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			lengths[i] = p.LLen(n.ctx, key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, queue := range s.queues {
		for tasks := lengths[i].Val(); tasks > 0 && n.wake(s, notified, queue); tasks-- {
		}
	}
	return nil
}
