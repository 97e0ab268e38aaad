//go:build unix

package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/ledger"
)

// A shift is a fleet at work, and what an operator sees of it by lockctl.
type shift struct {
	*testbed

	rdb *redis.Client
}

// A finding is a check of lockctl doctor that is not ok.
type finding struct{ Check, Status, Found string }

// A diagnosis is what lockctl doctor says.
type diagnosis struct {
	Checks  []finding
	Servers []inspect.Server
	Queues  []inspect.Queue
}

// ask decodes what a command prints.
func ask[T any](t *testing.T, s *shift, args ...string) (answer T, status int) {
	t.Helper()
	out, errs, status := s.lockctl(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("lockctl %q: status %d, %v in %q\n%s", args, status, err, tail(out, 500), errs)
	}
	return answer, status
}

// doctor returns what lockctl doctor finds, and what it knows of the servers and the queues.
func (s *shift) doctor(t *testing.T) (found []finding, d diagnosis, status int) {
	t.Helper()
	d, status = ask[diagnosis](t, s, "doctor")
	return slices.DeleteFunc(d.Checks, func(f finding) bool { return f.Status == "ok" }), d, status
}

// change has lockctl change something.
func (s *shift) change(t *testing.T, args ...string) {
	t.Helper()
	out, errs, status := s.lockctl(t, args...)
	expect.Need(t, status == 0, "lockctl %q: want status 0, have %d %s %s", args, status, out, errs)
}

// heldBy returns a task that runs in a process, and its resource, by the name of its attempt in Redis.
func (s *shift) heldBy(t *testing.T, w *worker) (id, resource string) {
	t.Helper()
	expect.Eventually(t, "a task at work", func() bool {
		for _, id = range s.rdb.LRange(t.Context(), "asynq:{default}:active", 0, -1).Val() {
			fields := s.rdb.HMGet(t.Context(), "asynq:{default}:t:"+id, "siding_attempt", "siding_lock").Val()
			attempt, _ := fields[0].(string)
			lock, _ := fields[1].(string)
			if strings.Contains(attempt, fmt.Sprintf("(pid %d)", w.Cmd.Process.Pid)) {
				resource = strings.TrimPrefix(lock, "lock:")
				return true
			}
		}
		return false
	})
	return id, resource
}

// freeze stops a process in the middle of its work, and returns the task that stays with it, and its resource. It does not stop the
// process while that writes to the ledger: SQLite would keep all others from it.
func (s *shift) freeze(t *testing.T, w *worker) (id, resource string) {
	t.Helper()
	db := expect.Value(sql.Open("sqlite", "file:"+s.ledger+"?_txlock=immediate&_busy_timeout=1000"))(t)
	defer func() { _ = db.Close() }()
	expect.Eventually(t, "a moment without a write", func() bool {
		expect.OK(t, w.Cmd.Process.Signal(syscall.SIGSTOP))
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			expect.OK(t, w.Cmd.Process.Signal(syscall.SIGCONT))
			return false
		}
		return tx.Rollback() == nil
	})
	since := time.Now()
	expect.Eventually(t, "no outcome of it is under way", func() bool {
		was := id
		if id, resource = s.heldBy(t, w); id != was {
			since = time.Now()
		}
		return time.Since(since) > 100*time.Millisecond
	})
	return id, resource
}

// left is how many tasks of a queue have not ended.
func (s *shift) left(t *testing.T, name string) (n int64) {
	t.Helper()
	for _, state := range []string{"pending", "active"} {
		n += s.rdb.LLen(t.Context(), "asynq:{"+name+"}:"+state).Val()
	}
	return n + s.rdb.ZCard(t.Context(), "asynq:{"+name+"}:retry").Val()
}

// An operator's hour, in two minutes: three workers, 20,000 tasks on 50 resources, and what goes wrong in a year. At each moment
// the test wants the tools to say what is true: what it has just done, or what Redis has.
func TestAnOperatorsHour(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	const orders, audits = 50, 400
	s := &shift{testbed: newTestbed(t, "--appendonly", "yes")}
	s.rdb = s.redis.Client(t)
	client := newClient(t, s.rdb)
	put := func(job queue.Job) string {
		t.Helper()
		results := expect.Value(client.EnqueueBatch(t.Context(), []queue.Job{job}))(t)
		expect.OK(t, results[0].Err)
		return results[0].ID
	}
	for range audits / 10 {
		var jobs []queue.Job
		for n := range 10 * orders {
			jobs = append(jobs, queue.Job{Task: tasks.AuditOrder{Order: strconv.Itoa(n % orders)}})
		}
		for _, r := range expect.Value(client.EnqueueBatch(t.Context(), jobs))(t) {
			expect.OK(t, r.Err)
		}
	}

	t.Log("Nobody works yet, and doctor says so.")
	found, d, _ := s.doctor(t)
	expect.That(t, len(d.Servers) == 0 && len(d.Queues) == 1 && d.Queues[0].Pending == orders*audits, "want 20,000 pending tasks and no server, have %+v and %+v", d.Queues, d.Servers)
	expect.That(t, slices.ContainsFunc(found, func(f finding) bool { return strings.Contains(f.Found, "no server serves default") }), "want a queue without servers found, have %+v", found)

	t.Log("Three workers start, and nothing is wrong.")
	var workers []*worker
	for range 3 {
		workers = append(workers, s.startWorker(t, "--work=30ms", "--concurrency=5", "--queue=default=1", "--queue=low=1"))
	}
	last := put(queue.Job{Task: tasks.AuditOrder{Order: "7"}})
	quiet := func(want int) {
		t.Helper()
		expect.Eventually(t, fmt.Sprintf("%d servers and nothing wrong", want), func() bool {
			found, d, status := s.doctor(t)
			return len(found) == 0 && status == 0 && len(d.Servers) == want
		})
	}
	quiet(3)
	s.heldBy(t, workers[0])
	before := s.left(t, "default")
	why, _ := ask[inspect.Explanation](t, s, "why", last)
	expect.That(t, !why.Verdict.Trouble && why.Resource == "order:7" && why.Retried == 0, "want the last task without trouble, have %+v", why)
	expect.Eventually(t, "some of up to 15 locks are held, by workers that live", func() bool {
		list, _ := ask[[]inspect.Lock](t, s, "list")
		held := slices.DeleteFunc(list, func(l inspect.Lock) bool { return l.State != inspect.Held })
		for _, l := range held {
			expect.That(t, !l.Gone && l.Worker != nil && slices.ContainsFunc(workers, func(w *worker) bool { return w.Cmd.Process.Pid == l.Worker.PID }), "want a living worker, have %+v", l)
		}
		expect.That(t, len(held) <= 15, "want up to 15 locks held, have %d", len(held))
		return len(held) > 0
	})
	expect.Eventually(t, "tasks end", func() bool { return s.left(t, "default") < before })

	t.Log("A worker is killed, and another is stopped: nobody can tell which is which.")
	killed, resource := s.freeze(t, workers[0])
	expect.OK(t, workers[0].Cmd.Process.Kill())
	died := time.Now()
	inTime := func(died time.Time) { // its entry lasts for 10 s; the lock for 15, after which nobody would have to ask
		t.Helper()
		said := time.Since(died).Round(time.Millisecond)
		t.Logf("said after %v", said)
		expect.That(t, said < 13*time.Second, "want it said within 10 s and some for the machine, have %v", said)
	}
	gone := func(w *worker, id, resource string) {
		t.Helper()
		expect.Eventually(t, "why says that the worker is gone", func() bool {
			why, _ := ask[inspect.Explanation](t, s, "why", id)
			return why.Verdict.Trouble && strings.Contains(why.Verdict.Wrong, "dead or cut off")
		})
		list, _ := ask[[]inspect.Lock](t, s, "list")
		for _, l := range list {
			dead := l.Worker != nil && l.Worker.PID == w.Cmd.Process.Pid
			expect.That(t, l.Gone == dead && (dead || l.Resource != resource), "want the lock of %s without its worker, and those of others with theirs, have %+v", resource, l)
		}
	}
	gone(workers[0], killed, resource)
	inTime(died)
	s.awaitGone(t, "default", killed, killedAgainBy-time.Since(died))
	stopped, resource := s.freeze(t, workers[1])
	died = time.Now()
	gone(workers[1], stopped, resource)
	inTime(died)
	s.awaitGone(t, "default", stopped, killedAgainBy-time.Since(died))
	expect.Eventually(t, "one server is left", func() bool { _, d, _ := s.doctor(t); return len(d.Servers) == 1 })
	expect.OK(t, workers[1].Cmd.Process.Signal(syscall.SIGCONT))
	quiet(2)

	t.Log("A queue is paused: its tasks wait, and those of the other go on.")
	out, errs, status := s.lockctl(t, "queue", "pause", "low", "--reason", "the bank is down", "--yes")
	expect.That(t, status == 1 && strings.Contains(errs, `there is no queue "low"`), "want no such queue, have %d %s %s", status, out, errs)
	first := put(queue.Job{Task: tasks.AuditOrder{Order: "low"}, Options: &queue.Options{Queue: "low"}})
	s.awaitGone(t, "low", first, 10*time.Second)
	s.change(t, "queue", "pause", "low", "--reason", "the bank is down", "--yes")
	paused := put(queue.Job{Task: tasks.AuditOrder{Order: "low"}, Options: &queue.Options{Queue: "low"}})
	before = s.left(t, "default")
	expect.Eventually(t, "doctor says that the queue is paused", func() bool {
		found, _, _ := s.doctor(t)
		return slices.ContainsFunc(found, func(f finding) bool { return strings.Contains(f.Found, "low is paused, and 1 task waits") })
	})
	why, _ = ask[inspect.Explanation](t, s, "why", paused)
	expect.That(t, why.Paused && strings.Contains(why.Verdict.Wrong, "paused"), "want it said that the queue is paused, have %+v", why)
	expect.Eventually(t, "the other queue goes on", func() bool { return s.left(t, "default") < before-20 })
	expect.That(t, s.left(t, "low") == 1, "want the task of the paused queue where it was")
	s.change(t, "queue", "resume", "low")
	s.awaitGone(t, "low", paused, 10*time.Second)

	t.Log("A line stops, and another is held until a retry.")
	strict := &queue.Policy{OnFailure: queue.OnFailureStop}
	failed := put(queue.Job{Task: unknown{"order:stops"}, Options: &queue.Options{Queue: "low", Policy: strict, Retries: queue.NoRetries}})
	retried := put(queue.Job{Task: unknown{"order:holds"}, Options: &queue.Options{Queue: "low", Policy: &queue.Policy{OnFailure: queue.OnFailureHold}}})
	behind := put(queue.Job{Task: tasks.AuditOrder{Order: "stops"}, Options: &queue.Options{Queue: "low"}})
	expect.Eventually(t, "lines lists the stopped one first, and then the held one", func() bool {
		lines, _ := ask[[]inspect.HeldLine](t, s, "lines")
		return len(lines) == 2 && lines[0].Task.ID == failed && lines[0].Stopped && lines[0].Waiting == 1 && lines[1].Task.ID == retried && !lines[1].Stopped
	})
	why, status = ask[inspect.Explanation](t, s, "why", behind)
	expect.That(t, status != 0 && why.Verdict.Trouble && strings.Contains(why.Verdict.Wrong, "is stopped by the task "+failed), "want the task named that has stopped the line, have %+v", why.Verdict)
	found, _, _ = s.doctor(t)
	expect.That(t, slices.ContainsFunc(found, func(f finding) bool { return strings.Contains(f.Found, "the line of order:stops waits for") }), "want the line found, have %+v", found)
	s.change(t, "archive", failed, "--reason", "drill", "--yes")
	s.change(t, "archive", retried, "--reason", "drill", "--yes")
	s.awaitGone(t, "low", behind, 10*time.Second)
	quiet(2)

	t.Log("Redis is away, and comes back with what it knew.")
	s.redis.Kill()
	out, errs, status = s.lockctl(t, "doctor")
	expect.That(t, status == 1 && strings.Contains(errs, "connection refused"), "want Redis refusing connections, have %d %s %s", status, out, errs)
	s.redis.Restart(t)
	quiet(2)
	before = s.left(t, "default")
	expect.That(t, before > 0, "want tasks left when Redis comes back")
	expect.Eventually(t, "tasks go on", func() bool { return s.left(t, "default") < before })

	t.Log("All tasks end, each once.")
	all := func() int64 { return s.left(t, "default") + s.left(t, "low") }
	for left := all(); left > 0; {
		before := left
		expect.Eventually(t, "tasks go on", func() bool {
			left = all()
			return left < before
		})
	}
	quiet(2)
	for _, w := range workers[1:] {
		w.end(t, os.Interrupt)
	}
	l := expect.Value(ledger.Open(s.ledger))(t)
	defer func() { _ = l.Close() }()
	for n := range orders {
		want, have := audits, 0
		if n == 7 {
			want++
		}
		expect.OK(t, l.DB().QueryRowContext(t.Context(), "SELECT audits FROM orders WHERE order_no = $1", strconv.Itoa(n)).Scan(&have))
		expect.Equal(t, fmt.Sprintf("audits of order %d", n), have, want)
	}
}

// awaitGone waits until a task has ended.
func (s *shift) awaitGone(t *testing.T, name, id string, limit time.Duration) {
	t.Helper()
	began := time.Now()
	expect.Eventually(t, id+" has ended", func() bool { return s.rdb.Exists(t.Context(), "asynq:{"+name+"}:t:"+id).Val() == 0 })
	expect.That(t, time.Since(began) < limit, "%s has ended after %v, want %v", id, time.Since(began), limit)
}

// unknown is a task that no worker of the shop knows.
type unknown struct{ resource string }

func (unknown) Kind() string       { return "order:ship" }
func (u unknown) Resource() string { return u.resource }
