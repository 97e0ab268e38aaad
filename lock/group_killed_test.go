//go:build unix

package lock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

const (
	groupEnv   = "SIDING_TEST_GROUP" // the address of Redis, for the process that is killed
	groupLocks = 32
	groupTTL   = 2 * time.Second
)

func groupName(i int) string { return fmt.Sprint("killed:", i) }

// TestHelperGroups takes and releases locks until it is killed.
//
//nolint:paralleltest // a process of its own
func TestHelperGroups(t *testing.T) {
	addr := os.Getenv(groupEnv)
	if addr == "" {
		return // it is not run by TestProcessIsKilledUnderGroups
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	locker, err := lock.New(lock.Redis(rdb), lock.Config{TTL: groupTTL})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience) // should nobody kill it
	defer cancel()
	var all sync.WaitGroup
	for i := range groupLocks {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := locker.Do(ctx, groupName(i), nil, func(context.Context) error { return nil })
				if err == nil && n == 10 {
					fmt.Println("goes") //nolint:forbidigo // to the test
				}
			}
		})
	}
	all.Wait()
}

// TestProcessIsKilledUnderGroups: all its locks are free a TTL later, with higher fences, and no key stays for ever.
func TestProcessIsKilledUnderGroups(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperGroups$")
	cmd.Env = append(os.Environ(), groupEnv+"="+server.Addr)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	for lines, n := bufio.NewScanner(out), 0; n < groupLocks && lines.Scan(); {
		if lines.Text() == "goes" {
			n++
		}
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	since := time.Now()
	s := setUp(t, rdb, lock.Config{})
	for i := range groupLocks {
		last, err := rdb.Get(t.Context(), "{lock:"+groupName(i)+"}:fence").Int64()
		must(t, err)
		poll.Eventually(t, "the lock to be free", func() bool {
			held, err := s.Acquire(t.Context(), groupName(i), nil)
			if err != nil {
				return false
			}
			if held.Fence() <= last {
				t.Errorf("want a fence above %d, have %d", last, held.Fence())
			}
			s.release(held)
			return true
		})
	}
	if took := time.Since(since); took > 2*groupTTL {
		t.Errorf("want all free after a TTL, have it after %v", took)
	}
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		if rdb.TTL(t.Context(), key).Val() < 0 && rdb.Exists(t.Context(), key).Val() > 0 {
			t.Errorf("want %s to go away", key)
		}
	}
}
