package fetch

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Notifier wakes the idle [Fetcher]s of this process. The Notifier's mutex guards their states,
// and is not held during a call to Redis. While fetchers of the same queues wait, a subscription
// listens for these queues by one call, on a separate connection.
//
// A Notifier hears only clients that notify: those of package hook, and the scripts of this
// project. To find the tasks of others, the Notifier scans the queues from time to time.
type Notifier struct {
	logger  *slog.Logger
	requeue func([]Task)
	ctx     context.Context //nolint:containedctx // of the goroutines, until Close
	end     context.CancelFunc
	done    sync.WaitGroup

	mu            sync.Mutex
	fetchers      []*Fetcher
	orders        []*priorities // of the queues of servers, each once
	asksTogether  bool          // see AskTogether
	connect       func() (redis.UniversalClient, bool)
	poll          time.Duration
	rdb           redis.UniversalClient // made for the first fetcher that waits
	subscriptions map[string]*subscription
}

// NewNotifier returns a notifier that hears nothing until [Notifier.Connect] is called. requeue
// gets the prefetched tasks that no server has claimed, in the order in which they were taken. It
// must requeue the last one first, and return without waiting for that.
func NewNotifier(logger *slog.Logger, requeue func([]Task)) *Notifier {
	n := &Notifier{logger: logger, requeue: requeue, subscriptions: make(map[string]*subscription)}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

// Connect gives the notifier the function that makes its client. The notifier closes the client.
// The first call counts. The client must reach the Redis that the tasks are in.
func (n *Notifier) Connect(connect func() (redis.UniversalClient, bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connect == nil {
		n.connect = connect
	}
}

// Poll has the notifier scan the queues every so often instead of once a second;
// the shortest interval counts.
func (n *Notifier) Poll(every time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.poll == 0 || every < n.poll {
		n.poll = every
	}
}

// Serves says which queues a server has, and in which order it asks them. If several servers differ
// in that, nothing is prefetched, as the notifier does not know whose a fetcher is. There is at
// least one queue, and each weight is positive. The map must not change any more.
func (n *Notifier) Serves(queues map[string]int, strict bool) {
	have := newPriorities(queues, strict)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.ContainsFunc(n.orders, have.equal) {
		n.orders = append(n.orders, have)
	}
}

// AskTogether says that one call can ask several queues. If a server's first queue is empty, all its
// others are then asked by a second call.
func (n *Notifier) AskTogether() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asksTogether = true
}

// choosesQueues reports whether the fetcher chooses the queues that answer a dequeue of queue. It does not
// if the server's queues are not known, if one call cannot ask several, or if no notification could end
// the wait that follows.
func (n *Notifier) choosesQueues(queue string) bool {
	order := n.order()
	return n.asksTogether && order != nil && order.weights[queue] > 0 && !n.closed() && n.open()
}

// others returns the other queues of a server that asks for tasks of queue, in the order in which asynq
// would ask them. It returns none if the fetcher does not choose the queues.
func (n *Notifier) others(queue string) []string {
	if !n.choosesQueues(queue) {
		return nil
	}
	order := n.order()
	return order.draw(len(order.ordered), queue)
}

// draw returns a queue that asynq would ask next. It returns the one that the server has asked, if the
// fetcher does not choose the queues.
func (n *Notifier) draw(asked string) string {
	if !n.choosesQueues(asked) {
		return asked
	}
	return n.order().draw(1, "")[0]
}

// order returns the priorities of all servers; nil if they differ, or are not known yet.
func (n *Notifier) order() *priorities {
	if len(n.orders) == 1 {
		return n.orders[0]
	}
	return nil
}

// together reports whether each server that asks for a task of asked serves queue, too.
func (n *Notifier) together(asked, queue string) bool {
	known := asked == queue
	for _, o := range n.orders {
		if o.weights[asked] > 0 {
			if o.weights[queue] == 0 {
				return false
			}
			known = true
		}
	}
	return known
}

// Close ends the prefetching, and requeues the tasks that no server has claimed. Close wakes all
// fetchers, which poll from now on, and closes the connection.
func (n *Notifier) Close() {
	n.mu.Lock()
	n.end()
	for _, f := range n.fetchers {
		f.expiry.Stop()
		f.drop(len(f.prefetched))
		f.to(unreachable)
	}
	rdb := n.rdb
	n.mu.Unlock()
	if rdb != nil {
		_ = rdb.Close() // interrupts who listens; nothing else is in flight
	}
	n.done.Wait()
}

func (n *Notifier) closed() bool { return n.ctx.Err() != nil }

// wait has the fetcher wait, after e, for a notification of its queues or a prefetched task. A dequeue of
// queue is held back.
func (f *Fetcher) wait(e event, queue string) {
	f.to(e)
	switch {
	case f.claimable(queue):
		f.to(delivered) // it has come since the server asked
	case f.closed() || !f.open():
		f.to(unreachable)
	default:
		for _, s := range f.subscribed(f.queues) {
			f.subscribe(s, f)
		}
	}
}

// open makes the client; false when there is none to be had.
func (n *Notifier) open() bool {
	if n.rdb == nil && n.connect != nil {
		if rdb, ok := n.connect(); ok {
			if c, ok := rdb.(interface{ Unwrap() redis.UniversalClient }); ok {
				rdb = c.Unwrap() // which says whether it is of a Cluster
			}
			n.rdb = rdb
		}
	}
	return n.rdb != nil
}

// subscribed returns the subscriptions of queues. In a Cluster there is one for each, as one call
// cannot wait on several nodes.
func (n *Notifier) subscribed(queues []string) []*subscription {
	sets := [][]string{slices.Sorted(slices.Values(queues))}
	if _, cluster := n.rdb.(*redis.ClusterClient); cluster {
		sets = slices.Collect(slices.Chunk(sets[0], 1))
	}
	all := make([]*subscription, len(sets))
	for i, set := range sets {
		name := strings.Join(set, "\n")
		if n.subscriptions[name] == nil {
			n.subscriptions[name] = &subscription{queues: set}
		}
		all[i] = n.subscriptions[name]
	}
	return all
}

// unanswered reports whether Redis has not answered for so long that a notification of queues may have been
// missed.
func (n *Notifier) unanswered(queues []string) bool {
	return slices.ContainsFunc(n.subscribed(queues), func(s *subscription) bool { return time.Since(s.answered) > unansweredAfter })
}

func (n *Notifier) interval() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cmp.Or(n.poll, time.Second)
}
