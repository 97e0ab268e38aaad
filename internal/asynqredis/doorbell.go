package asynqredis

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Doorbell wakes the idle [Fetcher]s of this process. While some of those that serve the same
// queues are idle, it waits on the bells of these queues by one call, on a connection of its own.
// It takes a bell's element for one fetcher, which then looks for a task. If that fetcher has just
// found work, and no other is idle, it puts the element back for other processes.
//
// It hears only those who ring: [Ringing], a [Hook], and the scripts of this package. To find the
// tasks of others it looks at the queues themselves from time to time.
type Doorbell struct {
	logger *slog.Logger
	ctx    context.Context //nolint:containedctx // of the goroutines, until Close
	end    context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	connect func() (redis.UniversalClient, bool)
	poll    time.Duration
	rdb     redis.UniversalClient // made for the first who waits
	posts   map[string]*post
}

// A post is where fetchers wait for the bells of some queues.
type post struct {
	queues []string
	idle   []*Fetcher
	manned bool
	heard  time.Time // when Redis last answered

	// Of who mans it; rings that come and go must not put off the next look.
	look   time.Time
	outage outage
}

const (
	// earshot is how long one call waits for a bell; for a client of less patience see there.
	earshot = time.Second
	// deafAfter is how long after the last answer fetchers look for themselves.
	deafAfter = 3 * time.Second
)

// NewDoorbell returns a doorbell that is out of order until [Doorbell.Connect] is called.
func NewDoorbell(logger *slog.Logger) *Doorbell {
	d := &Doorbell{logger: logger, posts: make(map[string]*post)}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d
}

// Connect gives the doorbell what makes its client, which it closes; the first call
// counts. The client must reach the Redis that the tasks are in.
func (d *Doorbell) Connect(connect func() (redis.UniversalClient, bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connect == nil {
		d.connect = connect
	}
}

// Poll has the doorbell look at the queues every so often instead of once a second;
// the shortest interval counts.
func (d *Doorbell) Poll(every time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.poll == 0 || every < d.poll {
		d.poll = every
	}
}

// Close wakes all fetchers, which poll from now on, and closes the connection.
func (d *Doorbell) Close() {
	d.mu.Lock()
	d.end()
	rdb := d.rdb
	d.mu.Unlock()
	if rdb != nil {
		_ = rdb.Close() // interrupts who listens; nothing else is in flight
	}
	d.done.Wait()
}

// wait has f woken when a bell of its queues rings, unless f has been woken already.
func (d *Doorbell) wait(f *Fetcher, queues []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(f.woken) > 0 {
		return
	}
	// Both are set under d.mu, under which tasks are delivered. A delivery between the two would wake f,
	// and f could then be woken again.
	f.dozing.Store(true)
	f.left.Store(held)
	if d.ctx.Err() != nil || !d.open() {
		f.wake("")
		return
	}
	for _, p := range d.postsOf(queues) {
		if !slices.Contains(p.idle, f) {
			p.idle = append(p.idle, f)
		}
		if !p.manned {
			p.manned, p.heard = true, time.Now()
			d.done.Go(func() { d.man(p) })
		}
	}
}

// deliver wakes f for a prefetched task, if it holds back a dequeue; see [Fetcher.leave].
func (d *Doorbell) deliver(f *Fetcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for f.dozing.CompareAndSwap(true, false) {
		if f.left.Load() == held {
			f.woken <- wake{prefetched: true}
			return
		}
		f.dozing.Store(true)
		if f.left.Load() != held {
			return // the next dequeue claims it
		}
	}
}

// open makes the client; false when there is none to be had. d.mu is held.
func (d *Doorbell) open() bool {
	if d.rdb == nil && d.connect != nil {
		if rdb, ok := d.connect(); ok {
			if r, ok := rdb.(*Ringer); ok {
				rdb = r.UniversalClient // which says whether it is of a Cluster
			}
			d.rdb = rdb
		}
	}
	return d.rdb != nil
}

// postsOf returns the posts for queues. In a Cluster there is one for each, as one call
// cannot wait on several nodes. d.mu is held.
func (d *Doorbell) postsOf(queues []string) []*post {
	sets := [][]string{slices.Sorted(slices.Values(queues))}
	if _, cluster := d.rdb.(*redis.ClusterClient); cluster {
		sets = slices.Collect(slices.Chunk(sets[0], 1))
	}
	posts := make([]*post, len(sets))
	for i, set := range sets {
		name := strings.Join(set, "\n")
		if d.posts[name] == nil {
			d.posts[name] = &post{queues: set}
		}
		posts[i] = d.posts[name]
	}
	return posts
}

// deaf reports whether Redis has not answered for so long that a bell of queues may
// have been missed.
func (d *Doorbell) deaf(queues []string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.postsOf(queues), func(p *post) bool { return time.Since(p.heard) > deafAfter })
}

// man listens at a post while fetchers are idle there.
func (d *Doorbell) man(p *post) {
	for d.anyIdle(p) {
		queue, err := d.listen(p, time.Until(p.look))
		if err == nil && queue != "" && !d.wake(p, queue) {
			err = d.rdb.RPush(d.ctx, bellKey(queue), "1").Err() // for another process
		}
		if err == nil && !time.Now().Before(p.look) {
			p.look = time.Now().Add(d.interval())
			err = d.lookAt(p)
		}
		if err != nil {
			d.failed(p, err, p.outage.failures.Load() == 0)
		}
		p.outage.rest(d.ctx, err)
	}
	if d.ctx.Err() != nil {
		d.wakeAll(p)
	}
}

func (d *Doorbell) interval() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.poll, time.Second)
}

// failed has the fetchers at p look for themselves, and logs that the first time.
func (d *Doorbell) failed(p *post, err error, first bool) {
	if first && d.ctx.Err() == nil {
		d.logger.WarnContext(d.ctx, "bells cannot be heard: idle workers poll", "error", err)
	}
	d.wakeAll(p)
}

// wakeAll has the fetchers at p look for themselves.
func (d *Doorbell) wakeAll(p *post) {
	for d.wake(p, "") {
	}
}

// anyIdle reports whether somebody is to listen at p; else nobody does any more.
func (d *Doorbell) anyIdle(p *post) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(f *Fetcher) bool { return !f.dozing.Load() })
	p.manned = len(p.idle) > 0 && d.ctx.Err() == nil
	return p.manned
}

// wake wakes one of the fetchers at p; false when none is idle.
func (d *Doorbell) wake(p *post, queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(p.idle) > 0 {
		f := p.idle[0]
		p.idle = p.idle[1:]
		if f.wake(queue) {
			return true
		}
	}
	return false
}

// listen waits for a bell and returns its queue, "" when none rang.
func (d *Doorbell) listen(p *post, longest time.Duration) (queue string, err error) {
	args := []any{"blpop"}
	for _, queue := range p.queues {
		args = append(args, bellKey(queue))
	}
	// As a call of no special kind, so that the client's own timeout bounds it.
	longest = min(max(longest, time.Millisecond), d.earshot())
	args = append(args, strconv.FormatFloat(longest.Seconds(), 'f', -1, 64))
	cmd := redis.NewStringSliceCmd(d.ctx, args...)
	err = d.rdb.Process(d.ctx, cmd)
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", err
	}
	d.mu.Lock()
	p.heard = time.Now()
	d.mu.Unlock()
	if rang := cmd.Val(); len(rang) == 2 {
		queue = strings.TrimSuffix(strings.TrimPrefix(rang[0], "siding:{"), "}:bell")
	}
	return queue, nil
}

// earshot returns how long one call may wait: for half of what the client waits for an
// answer, but no longer than earshot.
func (d *Doorbell) earshot() time.Duration {
	var patience time.Duration
	switch rdb := d.rdb.(type) {
	case *redis.Client:
		patience = rdb.Options().ReadTimeout
	case *redis.ClusterClient:
		patience = rdb.Options().ReadTimeout
	}
	if patience <= 0 {
		return earshot // it waits for ever, or who knows
	}
	return min(earshot, patience/2)
}

// lookAt wakes fetchers for the queues that have tasks.
func (d *Doorbell) lookAt(p *post) error {
	keys := make([]string, len(p.queues))
	for i, queue := range p.queues {
		keys[i] = pendingKey(queue)
	}
	some, err := d.rdb.Exists(d.ctx, keys...).Result()
	if err != nil || some == 0 {
		return err
	}
	for i, queue := range p.queues {
		n, err := d.rdb.LLen(d.ctx, keys[i]).Result()
		if err != nil {
			return err
		}
		for ; n > 0 && d.wake(p, queue); n-- {
		}
	}
	return nil
}
