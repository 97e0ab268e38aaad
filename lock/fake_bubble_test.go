package lock_test

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/lock"
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed renew.lua
	renewLua string
	//go:embed release.lua
	releaseLua string
)

// A fakeRedis is the lock's key in memory, on the clock of the bubble it is
// used in and without a line of waiters: enough to see what a lease does when
// its calls are slow, fail or get lost. What the scripts do is tested on
// servers that run them.
type fakeRedis struct {
	redis.Scripter // whatever is not below panics

	mu      sync.Mutex
	value   string
	expires time.Time
	fence   int64
	calls   []call
	network fault
}

// A call is one script that was sent.
type call struct {
	script string // acquire, renew or release
	at     time.Time
	bound  time.Duration // until the deadline of its context, 0 if it had none
	dead   bool          // its context had ended already
}

// A fault is what the network makes of a call: act lets the server run the
// script, and returns its answer.
type fault func(ctx context.Context, script string, act func() any) (any, error)

var errNetwork = errors.New("connection reset by peer")

// The faults that the tests use.
func fine(_ context.Context, _ string, act func() any) (any, error)    { return act(), nil }
func failing(context.Context, string, func() any) (any, error)         { return nil, errNetwork }
func swallow(_ context.Context, _ string, act func() any) (any, error) { act(); return nil, errNetwork }

// hanging is a client that honours the deadline of its context, but, as
// go-redis, not its cancellation.
func hanging(ctx context.Context, _ string, _ func() any) (any, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Hour)
	}
	time.Sleep(time.Until(deadline))
	return nil, context.DeadlineExceeded
}

// deaf is a client that waits for its own time, whatever the context says.
func deaf(d time.Duration) fault {
	return func(context.Context, string, func() any) (any, error) {
		time.Sleep(d)
		return nil, errNetwork
	}
}

// slow answers d after the server has acted.
func slow(d time.Duration) fault {
	return func(_ context.Context, _ string, act func() any) (any, error) {
		v := act()
		time.Sleep(d)
		return v, nil
	}
}

// once is f for the next n calls of script, and no fault for the others.
func once(script string, n int, f fault) fault {
	return func(ctx context.Context, s string, act func() any) (any, error) {
		if s != script || n == 0 {
			return act(), nil
		}
		n--
		return f(ctx, s, act)
	}
}

func (f *fakeRedis) set(network fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.network = network
}

// put stores a value as somebody else would; "" deletes the key.
func (f *fakeRedis) put(value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.value, f.expires = value, time.Now().Add(time.Hour)
}

// get returns the value, "" when there is none or its time has passed.
func (f *fakeRedis) get() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.getLocked()
}

func (f *fakeRedis) getLocked() string {
	if !time.Now().Before(f.expires) {
		f.value = ""
	}
	return f.value
}

// sent returns when each call of script was sent, from start on.
func (f *fakeRedis) sent(script string, start time.Time) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var at []time.Duration
	for _, c := range f.calls {
		if c.script == script {
			at = append(at, c.at.Sub(start))
		}
	}
	return at
}

// last returns the last call of all.
func (f *fakeRedis) last(t *testing.T) call {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) == 0 {
		t.Fatal("want a call, have none")
	}
	return f.calls[len(f.calls)-1]
}

// EvalSha is the only way in which the scripts are run as long as Redis has them.
func (f *fakeRedis) EvalSha(ctx context.Context, sha string, _ []string, args ...any) *redis.Cmd {
	script := "other"
	for name, source := range map[string]string{"acquire": acquireLua, "renew": renewLua, "release": releaseLua} {
		if redis.NewScript(source).Hash() == sha {
			script = name
		}
	}
	c := call{script: script, at: time.Now(), dead: ctx.Err() != nil}
	if deadline, ok := ctx.Deadline(); ok {
		c.bound = time.Until(deadline)
	}
	f.mu.Lock()
	f.calls = append(f.calls, c)
	network := f.network
	f.mu.Unlock()
	switch {
	case c.dead: // go-redis sends nothing then
		network = func(context.Context, string, func() any) (any, error) { return nil, ctx.Err() }
	case network == nil:
		network = fine
	}

	cmd := redis.NewCmd(ctx)
	v, err := network(ctx, script, func() any { return f.act(script, args) })
	cmd.SetVal(v)
	cmd.SetErr(err)
	return cmd
}

// act does what the script does where nobody is in line.
func (f *fakeRedis) act(script string, args []any) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	token, _ := args[0].(string)
	value := f.getLocked()
	switch {
	case script == "acquire" && (value == "" || value == token):
		ttl, _ := args[1].(int64)
		if value == "" {
			f.fence++
		}
		f.value, f.expires = token, time.Now().Add(time.Duration(ttl)*time.Millisecond)
		return []any{int64(1), f.fence, "-1"}
	case script == "acquire":
		left := time.Until(f.expires).Milliseconds()
		return []any{int64(0), value, left, int64(0), "0", "0", "", "", "0", strconv.FormatInt(f.fence, 10)}
	case script == "renew" && value == token:
		ttl, _ := args[1].(int64)
		f.expires = time.Now().Add(time.Duration(ttl) * time.Millisecond)
		return int64(1)
	case script == "renew":
		return int64(0)
	case script == "release" && value == token:
		f.value = ""
		return []any{int64(1)}
	case script == "release":
		return []any{int64(0)}
	default:
		return nil
	}
}

// leased is a lease from a fake, taken at start with the default configuration:
// trusted for 14 s, renewed every 5 s, expired after 15 s.
type leased struct {
	*lock.Lease
	redis  *fakeRedis
	locker *lock.Locker
	start  time.Time
}

func newLeased(t *testing.T) *leased {
	t.Helper()
	l := &leased{redis: &fakeRedis{}, start: time.Now()}
	var err error
	if l.locker, err = lock.New(l.redis, lock.Config{}); err != nil {
		t.Fatal(err)
	}
	if l.Lease, err = l.locker.Acquire(t.Context(), "order:1", nil); err != nil {
		t.Fatal(err)
	}
	return l
}

// release releases the lease, which must still be held.
func (l *leased) release(t *testing.T) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// wantEnd waits until work ends and checks when it does and why.
func (l *leased) wantEnd(t *testing.T, work context.Context, after time.Duration) { //nolint:revive // t first, as in every helper
	t.Helper()
	timer := time.NewTimer(10 * time.Minute)
	defer timer.Stop()
	select {
	case <-work.Done():
	case <-timer.C:
		t.Fatal("want the context ended, have it alive")
	}
	if have := time.Since(l.start); have != after {
		t.Errorf("want the context ended after %v, have %v", after, have)
	}
	if cause := context.Cause(work); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("want the cause ErrLost, have %v", cause)
	}
	if l.Valid() {
		t.Error("want a lost lease, have a valid one")
	}
}

// wantAlive checks that work goes on.
func (l *leased) wantAlive(t *testing.T, work context.Context) { //nolint:revive // t first, as in every helper
	t.Helper()
	if err := context.Cause(work); err != nil {
		t.Errorf("want the context alive after %v, have %v", time.Since(l.start), err)
	}
	if !l.Valid() {
		t.Errorf("want a valid lease after %v", time.Since(l.start))
	}
}
