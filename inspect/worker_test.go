//go:build unix

package inspect_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/queue"
)

// workerEnv makes TestHelperWorker a worker: "<address of Redis> <queue>".
const workerEnv = "INSPECT_WORKER"

// TestHelperWorker is no test but the worker that others kill. Its handlers never end.
func TestHelperWorker(t *testing.T) {
	t.Parallel()
	addr, name, ok := strings.Cut(os.Getenv(workerEnv), " ")
	if !ok {
		return
	}
	s := expect.Value(queue.NewServer(queue.RedisOpt(redis.UniversalOptions{Addrs: []string{addr}}), queue.ServerConfig{
		Asynq: asynq.Config{Queues: map[string]int{name: 1}},
	}))(t)
	queue.Handle(s, func(ctx context.Context, _ job) error {
		<-ctx.Done()
		return nil
	})
	expect.OK(t, s.Run(t.Context()))
}

// process starts a worker that is a process of its own, has it run a job, and returns the job.
func (b *bed) process() (*exec.Cmd, string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestHelperWorker$")
	cmd.Env = append(os.Environ(), workerEnv+"="+b.opts.Addrs[0]+" "+b.queue)
	b.must(cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	id := b.job(0)
	b.awaitWhy(id, inspect.StateRunning)
	b.awaitServers(1)
	return cmd, id
}

// forget deletes the entry of a server, which would expire after 10 s.
func (b *bed) forget(pid int) {
	b.Helper()
	servers := get(b, b.inspector.Servers)
	for _, s := range servers {
		if s.PID == pid {
			b.do("del", "asynq:servers:{"+s.Host+":"+strconv.Itoa(s.PID)+":"+s.ID+"}")
		}
	}
}

// A worker that is dead or cut off is known as soon as its entry is gone. Redis cannot tell the two apart.
func TestHolderGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cmd, holder := b.process()
	b.serve(unrecovered)
	b.awaitServers(2)
	id := b.waiting(1, 1)[0]
	if e := b.awaitWhy(id, inspect.StateWaiting); e.Verdict.Trouble || e.Lock.Gone || e.Lock.Worker.PID != cmd.Process.Pid {
		t.Errorf("want a worker that lives, have %+v", e)
	}
	expect.OK(t, cmd.Process.Kill())
	b.forget(cmd.Process.Pid)
	e := b.why(id)
	if !e.Verdict.Trouble || !strings.Contains(e.Verdict.Wrong, holder+" on ") || !strings.Contains(e.Verdict.Wrong, "dead or cut off from Redis") ||
		!strings.Contains(e.Verdict.Clears, "runs again before those that wait, by ") || !e.Lock.Gone {
		t.Errorf("want a holder that is gone, have %+v", e.Verdict)
	}
	if e = b.why(holder); !e.Verdict.Trouble || !strings.Contains(e.Verdict.Clears, "The lock expires at ") || e.State != inspect.StateRunning {
		t.Errorf("want the holder's own verdict, have %s, %+v", e.State, e.Verdict)
	}
	l := b.held(b.resource)
	expect.That(t, l != nil && l.Gone && l.Task.ID == holder, "held: want it gone, have %+v", l)
}

var requeuedBy = regexp.MustCompile(`runs again before those that wait, by (\S+) UTC`)

// What a verdict promises comes true: the task of the dead worker runs again, and then the waiter.
func TestPromises(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	for name, signal := range map[string]syscall.Signal{"dead": syscall.SIGKILL, "cut off": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			cmd, holder := b.process()
			b.serve()
			b.awaitServers(2)
			id := b.waiting(1, 1)[0]
			expect.OK(t, cmd.Process.Signal(signal))
			b.hold(0)
			var e inspect.Explanation
			expect.Eventually(t, "the verdict", func() bool {
				e = b.why(id)
				return e.Verdict.Trouble
			})
			t.Logf("%+v", e.Verdict)
			m := requeuedBy.FindStringSubmatch(e.Verdict.Clears)
			expect.Need(t, m != nil, "want a time, have %q", e.Verdict.Clears)
			by := expect.Value(time.Parse(time.DateTime, time.Now().UTC().Format(time.DateOnly)+" "+m[1]))(t)
			b.awaitRun(0)
			const slow = 3 * time.Second // the machine
			late := time.Since(by)
			expect.That(t, late <= slow, "want the task to run again by %v, have it run %v later", by, late)
			if e = b.why(holder); e.Crashes != 1 {
				t.Errorf("want one crash, have %+v", e)
			}
			b.let(0)
			b.awaitRun(1)
		})
	}
}
