//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// A fleet is a number of workers, each replaced when it ends. Only one goroutine at a time may use
// the fleet.
type fleet struct {
	dir      string
	settings Settings
	workers  []*worker // those that should run
	all      []*worker
}

// A worker is a process.
type worker struct {
	Process

	cmd        *exec.Cmd
	journal    string
	log        string
	goroutines atomic.Int64  // at its last pulse
	serving    atomic.Bool   // takes tasks
	alive      chan struct{} // closed at its first pulse: from then on it obeys SIGTERM
	exited     chan struct{}
	err        error // how it ended, to be read after exited
}

// newFleet starts the workers and waits until they take tasks.
func newFleet(t *testing.T, settings Settings, size int) *fleet {
	t.Helper()
	f := &fleet{dir: t.ArtifactDir(), settings: settings}
	t.Cleanup(func() {
		for _, w := range f.all {
			_ = w.cmd.Process.Kill() // also a stopped one, and in vain one that has ended
			<-w.exited
		}
		if t.Failed() {
			for _, w := range f.workers {
				log, err := os.ReadFile(w.log)
				t.Logf("the log of %s:\n%s%v", w.Name, log[max(0, len(log)-2<<10):], err)
			}
		}
	})
	for range size {
		w := expect.Value(f.start())(t)
		f.workers = append(f.workers, w)
	}
	expect.OK(t, expect.Until(t.Context(), func() error {
		for _, w := range f.workers {
			if !w.serving.Load() {
				return fmt.Errorf("%s takes no tasks", w.Name)
			}
		}
		return nil
	}))
	return f
}

// workerEnv makes the test binary a worker with these settings.
const workerEnv = "CHAOS_WORKER"

func (f *fleet) start() (*worker, error) {
	number := len(f.all) + 1
	w := &worker{alive: make(chan struct{}), exited: make(chan struct{})}
	w.Name = "worker" + strconv.Itoa(number)
	w.journal, w.log = filepath.Join(f.dir, w.Name+".journal"), filepath.Join(f.dir, w.Name+".log")
	settings := f.settings
	settings.Journal = w.journal
	if number%2 == 0 {
		settings.Batch = 4
	}
	env, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(w.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own
	w.cmd = exec.Command(os.Args[0])   //nolint:noctx // ended by name, at the cleanup at the latest
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(env))
	w.cmd.Stderr = log
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.Started = Now()
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	f.all = append(f.all, w)
	go func() {
		defer close(w.exited)
		var p Pulse
		pulses := json.NewDecoder(stdout)
		for first := true; pulses.Decode(&p) == nil; first = false {
			w.goroutines.Store(int64(p.Goroutines))
			if !w.serving.Swap(p.Serving) && p.Serving {
				w.Serving = Now()
			}
			if first {
				close(w.alive)
			}
		}
		w.err = w.cmd.Wait()
		w.Exited = Now()
	}()
	return w, nil
}

// inject injects one of the workers' faults.
func (f *fleet) inject(ctx context.Context, i Injection, fault *Fault) (err error) {
	n := int(i.Pick % uint64(len(f.workers)))
	w := f.workers[n]
	switch i.Kind {
	case KillWorker:
		fault.Process = w.Name
		if err := w.end(syscall.SIGKILL); err != nil {
			return err
		}
		_ = sleep.For(ctx, i.For)
		f.workers[n], err = f.start()
		return err
	case StopWorker:
		fault.Process = w.Name
		return w.stop(ctx, i.For)
	case HaltWorker:
		fault.Process = w.Name
		for end := Now() + i.For; ctx.Err() == nil && Now() < end; {
			if err := w.stop(ctx, 300*time.Millisecond); err != nil {
				return err
			}
			_ = sleep.For(ctx, 100*time.Millisecond)
		}
		return nil
	case RollingStart:
		for n, w := range f.workers {
			if err = w.end(syscall.SIGTERM); err == nil {
				f.workers[n], err = f.start()
			}
			if err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("%s: not a fault of workers", i.Kind)
	}
}

// stop stops a worker for that long.
func (w *worker) stop(ctx context.Context, length time.Duration) error {
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s := Span{From: Now()}
	_ = sleep.For(ctx, length)
	s.To = Now()
	w.Stops = append(w.Stops, s)
	return w.cmd.Process.Signal(syscall.SIGCONT)
}

// end ends a worker, and notes a crash if it does not end as it should.
func (w *worker) end(how syscall.Signal) error {
	const patience = 30 * time.Second
	if how == syscall.SIGTERM { // before it listens for the signal, that would kill it
		select {
		case <-w.alive:
		case <-w.exited:
		}
	}
	if err := w.cmd.Process.Signal(how); err != nil {
		return fmt.Errorf("%s: %v: %w", w.Name, how, err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.exited:
	case <-timer.C:
		w.Crash = fmt.Sprintf("runs %v after %v", patience, how)
		return nil
	}
	if how == syscall.SIGTERM && w.err != nil {
		w.Crash = fmt.Sprintf("after %v: %v", how, w.err)
	}
	return nil
}

// goroutines returns the most that any of the workers has.
func (f *fleet) goroutines() int {
	most := 0
	for _, w := range f.workers {
		most = max(most, int(w.goroutines.Load()))
	}
	return most
}

// memory returns the most that any of the workers has in memory, in bytes.
func (f *fleet) memory() (int, error) {
	most := 0
	for _, w := range f.workers {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		var kb int
		if _, err := fmt.Sscan(rest, &kb); err != nil {
			return 0, fmt.Errorf("VmRSS of %s: %w", w.Name, err)
		}
		most = max(most, kb<<10)
	}
	return most, nil
}

// shutdown ends all workers and collects what they wrote down.
func (f *fleet) shutdown(h *History) error {
	for _, w := range f.workers {
		select {
		case <-w.exited:
			w.Crash = fmt.Sprintf("ended by itself: %v", w.err)
		default:
			if err := w.end(syscall.SIGTERM); err != nil {
				return err
			}
		}
	}
	for _, w := range f.all {
		if err := w.readLog(); err != nil {
			return err
		}
		h.Processes[w.Name] = &w.Process
		if err := h.ReadJournal(w.journal, w.Name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// readLog looks for what must not be in a log, and checks its size. A worker whose Redis is away
// must not fill the disk.
func (w *worker) readLog() error {
	const perSecond, atOnce = 100, 1000 // lines
	log, err := os.ReadFile(w.log)
	if err != nil {
		return err
	}
	for _, bad := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if i := bytes.Index(log, []byte(bad)); i >= 0 {
			w.Crash = fmt.Sprintf("%s in its log:\n%s", bad, log[i:min(i+4<<10, len(log))])
		}
	}
	if lines, most := bytes.Count(log, []byte("\n")), atOnce+int(perSecond*(w.Exited-w.Started).Seconds()); lines > most {
		w.Crash = fmt.Sprintf("wrote %d lines to its log in %v, want at most %d", lines, w.Exited-w.Started, most)
	}
	return nil
}

// said returns what the logs say of the task that a finding names.
func (f *fleet) said(finding string) string {
	var id string
	if _, err := fmt.Sscanf(finding, "task %s", &id); err != nil {
		return ""
	}
	said := &strings.Builder{}
	for _, w := range f.all {
		for _, file := range []string{w.log, w.journal} {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, id+" ") || strings.Contains(line, id+`"`) { // in the log, in the journal
					fmt.Fprintf(said, "%s: %s", w.Name, line)
				}
			}
		}
	}
	return said.String()
}
