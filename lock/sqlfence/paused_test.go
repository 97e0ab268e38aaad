//go:build unix

package sqlfence_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/pgtest"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/redisfence"
	"github.com/sidingq/siding/lock/sqlfence"
)

// pausedEnv makes TestHelperPausedHolder the process that is paused. The variable holds a job as
// JSON.
const pausedEnv = "LOCK_TEST_PAUSED_HOLDER"

// A job says what is locked and written, and how.
type job struct {
	Redis    string // the address of the lock's server
	Resource string
	Store    string // the kind of store
	Address  string // of the store
	Fenced   bool
}

// patience is how long a test waits for what has to happen.
const patience = 20 * time.Second

// pausedTTL is how long the lock of a paused process lives.
const pausedTTL = 3 * time.Second

// TestPausedProcess is the accident against which fences are. A process takes the lock, and is
// stopped just before it writes. Another one takes the lock and writes. The first goes on where it
// was, and writes before any check. With the fence the write is refused. Without, it lands on the
// other's; that half of the test shows that the other half is about the accident. Package lock would be
// the place, but go mod tidy would then fetch each driver for whoever imports it.
func TestPausedProcess(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(*testing.T) string{
		"redis":      func(t *testing.T) string { t.Helper(); return redistest.Shared(t).Addr },
		"sqlite":     func(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "stock.db") },
		"postgresql": func(t *testing.T) string { t.Helper(); return pgtest.DSN(t) },
		"mysql":      func(t *testing.T) string { t.Helper(); return mysqlDatabase(t).FormatDSN() },
	} {
		for _, fenced := range []bool{true, false} {
			if !fenced && name != "sqlite" {
				continue // nothing of the store is in its way
			}
			t.Run(fmt.Sprintf("%s/fenced=%t", name, fenced), func(t *testing.T) {
				t.Parallel()
				j := job{Redis: redistest.Shared(t).Addr, Resource: t.Name(), Store: name, Address: address(t), Fenced: fenced}
				s := openStore(t, j)
				s.create(t)

				paused := startPaused(t, j)
				former := paused.number(t, "holds with fence ")
				paused.signal(t, syscall.SIGSTOP)
				// The lock is renewed until the process stands still, and then expires.
				rival := acquireOnceFree(t, j)
				expect.Need(t, rival.Fence() > former, "want a fence above %d, have %d", former, rival.Fence())
				expect.OK(t, s.write(rival.Context(t.Context()), "rival", fenced))
				paused.say(t, "write") // found in its input when it goes on
				paused.signal(t, syscall.SIGCONT)

				answer, value := paused.answer(t, "wrote: "), "paused"
				if fenced {
					value = "rival"
					want := fmt.Sprintf("refused %d after %d", former, rival.Fence())
					expect.That(t, answer == want, "want the late write %s, have %s", want, answer)
				} else if answer != "done" {
					t.Errorf("want the late write done, as nothing is in its way, have %s", answer)
				}
				expect.Equal(t, "whose value it is", s.read(t), value)
				expect.Equal(t, "the context of the paused process ended by a loss", paused.answer(t, "lost: "), "true")
				_ = rival.Release(t.Context()) // it may have run out, too
			})
		}
	}
}

// TestHelperPausedHolder is no test but the process that is paused.
func TestHelperPausedHolder(t *testing.T) {
	t.Parallel()
	text := os.Getenv(pausedEnv)
	if text == "" {
		return
	}
	var j job
	expect.OK(t, json.Unmarshal([]byte(text), &j))
	s := openStore(t, j)
	held := acquireOnceFree(t, j)
	work := held.Context(t.Context())

	say := func(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }
	say("holds with fence %d", held.Fence())
	expect.OK(t, expect.Err(bufio.NewReader(os.Stdin).ReadString('\n')))
	// The context has the fence of the lease, but not its end. The end could come in time, and hide
	// what is tested.
	err := s.write(context.WithoutCancel(work), "paused", j.Fenced)
	if stale, ok := errors.AsType[*store.StaleError](err); ok {
		say("wrote: refused %d after %d", stale.Fence, stale.Seen)
	} else if err != nil {
		say("wrote: %v", err)
	} else {
		say("wrote: done")
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-work.Done():
	case <-late.C:
	}
	say("lost: %t", errors.Is(context.Cause(work), lock.ErrLost))
	_ = held.Release(t.Context()) // lost
}

// acquireOnceFree acquires the job's lock as soon as it can be had.
func acquireOnceFree(t *testing.T, j job) *lock.Lease {
	t.Helper()
	locker := expect.Value(lock.New(lock.Redis(newRedis(t, j.Redis)), lock.Config{TTL: pausedTTL}))(t)
	t.Cleanup(locker.Close)
	held := expect.Value(locker.Acquire(t.Context(), j.Resource, &lock.Options{Wait: lock.Forever, Retry: lock.Fixed(2 * time.Millisecond), Tries: 10_000}))(t)
	return held
}

func newRedis(t *testing.T, addr string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A fencedStore keeps one value that is written under a lock, with the fence or
// without.
type fencedStore struct {
	create func(*testing.T)
	write  func(ctx context.Context, value string, fenced bool) error
	read   func(*testing.T) string
}

// openStore opens the job's store.
func openStore(t *testing.T, j job) *fencedStore {
	t.Helper()
	switch j.Store {
	case "redis":
		return openRedisStore(newRedis(t, j.Address), j.Resource)
	case "sqlite":
		return openSQLStore(t, j.Resource, "sqlite", "file:"+j.Address+"?_txlock=immediate&_pragma=busy_timeout(30000)", sqlfence.SQLite)
	case "postgresql":
		return openSQLStore(t, j.Resource, "pgx", j.Address, sqlfence.PostgreSQL)
	case "mysql":
		return openSQLStore(t, j.Resource, "mysql", j.Address, sqlfence.MySQL)
	default:
		t.Fatalf("no store %q", j.Store)
		return nil
	}
}

func openRedisStore(rdb *redis.Client, resource string) *fencedStore {
	fenceKey, key := "{"+resource+"}:seen", "{"+resource+"}:value"
	set := redisfence.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")
	return &fencedStore{
		create: func(*testing.T) {},
		write: func(ctx context.Context, value string, fenced bool) error {
			if !fenced {
				return rdb.Set(ctx, key, value, 0).Err()
			}
			return set.Run(ctx, rdb, resource, fenceKey, []string{key}, value).Err()
		},
		read: func(t *testing.T) string { t.Helper(); return rdb.Get(t.Context(), key).Val() },
	}
}

func openSQLStore(t *testing.T, resource, driver, dsn string, dialect sqlfence.Dialect) *fencedStore {
	t.Helper()
	db := expect.Value(sql.Open(driver, dsn))(t)
	t.Cleanup(func() { _ = db.Close() })
	table := sqlfence.Table{Name: "items", Key: []string{"id"}, Dialect: dialect}
	return &fencedStore{
		create: func(t *testing.T) {
			t.Helper()
			for _, statement := range []string{
				"CREATE TABLE items (id VARCHAR(40) PRIMARY KEY, value VARCHAR(40) NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
				"INSERT INTO items (id, value) VALUES ('a', '')",
			} {
				expect.OK(t, expect.Err(db.ExecContext(t.Context(), statement)))
			}
		},
		write: func(ctx context.Context, value string, fenced bool) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if fenced {
				if err := table.Advance(ctx, tx, lock.Fence(ctx, resource), "a"); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(ctx, "UPDATE items SET value = '"+value+"' WHERE id = 'a'"); err != nil {
				return err
			}
			return tx.Commit()
		},
		read: func(t *testing.T) (value string) {
			t.Helper()
			expect.OK(t, db.QueryRowContext(t.Context(), "SELECT value FROM items WHERE id = 'a'").Scan(&value))
			return value
		},
	}
}

// A pausedProcess is this test's program, run a second time.
type pausedProcess struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

// startPaused starts TestHelperPausedHolder with its job. The test's cleanup
// ends the process, also a stopped one.
func startPaused(t *testing.T, j job) *pausedProcess {
	t.Helper()
	text := expect.Value(json.Marshal(j))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience) // it waits for one thing after the other
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestHelperPausedHolder$")
	cmd.Env = append(os.Environ(), pausedEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as in the histories of package lock
	in := expect.Value(cmd.StdinPipe())(t)
	out := expect.Value(cmd.StdoutPipe())(t)
	expect.OK(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	return &pausedProcess{cmd: cmd, in: in, out: bufio.NewScanner(out)}
}

func (p *pausedProcess) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	expect.OK(t, p.cmd.Process.Signal(sig))
}

func (p *pausedProcess) say(t *testing.T, line string) {
	t.Helper()
	expect.OK(t, expect.Err(fmt.Fprintln(p.in, line)))
}

// answer returns the rest of the next line, which begins with what.
func (p *pausedProcess) answer(t *testing.T, what string) string {
	t.Helper()
	p.out.Scan()
	rest, ok := strings.CutPrefix(p.out.Text(), what)
	expect.Need(t, ok, "want %q from the paused process, have %q, %v", what, p.out.Text(), p.out.Err())
	return rest
}

func (p *pausedProcess) number(t *testing.T, what string) int64 {
	t.Helper()
	n := expect.Value(strconv.ParseInt(p.answer(t, what), 10, 64))(t)
	return n
}
