package compare

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// errBusy says that somebody else has the lock.
var errBusy = errors.New("the resource is busy")

// errLost ends the work of a holder whose lock is not its own any more.
var errLost = errors.New("the lock is lost")

// ttl is that of Siding's locks. A third of it passes between two renewals.
const ttl = 15 * time.Second

// Both scripts compare the token first. KEYS: the lock. ARGV: the token, the TTL in ms.
var (
	renewal = redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)
	release = redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`)
)

// A plainLock keeps one lock for each resource, by SET NX PX with a random token.
type plainLock struct {
	redis redis.UniversalClient
	ttl   time.Duration
}

// do calls work while it holds the lock of the resource. The context of work ends when the lock is
// lost. The error is errBusy if somebody else has the lock.
func (l plainLock) do(ctx context.Context, resource string, work func(context.Context) error) error {
	key, token := "lock:"+resource, rand.Text()
	err := l.redis.SetArgs(ctx, key, token, redis.SetArgs{Mode: "NX", TTL: l.ttl}).Err()
	if errors.Is(err, redis.Nil) {
		return errBusy
	}
	if err != nil {
		return err
	}
	held, end := context.WithCancelCause(ctx)
	var renews sync.WaitGroup
	renews.Go(func() { l.renew(held, end, key, token) })
	err = work(held)
	end(nil)
	renews.Wait()
	return errors.Join(err, release.Run(context.WithoutCancel(ctx), l.redis, []string{key}, token).Err())
}

// renew prolongs the lock until ctx ends. It ends ctx when somebody else has the lock, or when Redis
// has not answered for a whole TTL.
func (l plainLock) renew(ctx context.Context, end context.CancelCauseFunc, key, token string) {
	ticker := time.NewTicker(l.ttl / 3)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		sent := time.Now()
		mine, err := renewal.Run(ctx, l.redis, []string{key}, token, l.ttl.Milliseconds()).Bool()
		switch {
		case err == nil && mine:
			last = sent
		case err == nil || time.Since(last) > l.ttl:
			end(errLost)
			return
		}
	}
}
