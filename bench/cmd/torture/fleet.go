package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/judge"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

// A worker is one process.
type worker struct {
	*proc.Server

	journal string
}

// program returns the program, and its arguments, that plays a part for the contender on a server.
func (t *trial) program(part, server, journal string) (path string, args []string, err error) {
	s := t.setting(server, journal).String()
	if t.Needs == contest.Node {
		path, err = exec.LookPath("node")
		return path, []string{filepath.Join(t.node, "torture.mjs"), part, s}, err
	}
	path, err = os.Executable()
	return path, []string{part, s}, err
}

// ask has a process of the contender play a part, and returns what it prints.
func (t *trial) ask(ctx context.Context, part string) (string, error) {
	path, args, err := t.program(part, t.near, "")
	if err != nil {
		return "", err
	}
	var failure bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", part, err, failure.String())
	}
	return string(out), nil
}

// left returns how many tasks the queue has.
func (t *trial) left(ctx context.Context) (int, error) {
	text, err := t.ask(ctx, counting)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// employ starts a worker in a slot, whose way to the server stays the same.
func (t *trial) employ(ctx context.Context, slot int) error {
	server, err := proc.New("worker")
	if err != nil {
		return err
	}
	w := &worker{Server: server, journal: filepath.Join(t.dir, fmt.Sprintf("%d.jsonl", len(t.all)))}
	t.all = append(t.all, w)
	t.now[slot] = w
	behind, err := t.behind(t.gates[slot].Addr)
	if err != nil {
		return err
	}
	if w.Program, w.Args, err = t.program(working, behind, w.journal); err != nil {
		return err
	}
	w.Ready = func(context.Context) error {
		if !strings.Contains(string(w.Log()), ready) {
			return errors.New("it takes no tasks yet")
		}
		return nil
	}
	return w.Start(ctx)
}

// strike notes a fault that has just struck the workers of these slots.
func (t *trial) strike(f judge.Fault, of ...*worker) {
	f.At = proc.Now()
	for _, w := range of {
		f.Processes = append(f.Processes, w.PID())
	}
	t.faults = append(t.faults, f)
}

// busy returns the slot of a worker that is at work, as soon as one is. A fault that strikes idle workers would say nothing.
func (t *trial) busy(ctx context.Context) (slot int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err = expect.Until(ctx, func() error {
		for i, w := range t.now {
			open := 0
			records, err := judge.Read(w.journal)
			for _, r := range records {
				if r.Kind == judge.Start {
					open++
				} else {
					open--
				}
			}
			if err == nil && open > 0 {
				slot = i
				return nil
			}
		}
		return errors.New("no task runs that a fault could strike")
	})
	return slot, err
}

func (t *trial) kill(ctx context.Context) error {
	slot, err := t.busy(ctx)
	if err != nil {
		return err
	}
	w := t.now[slot]
	w.Kill()
	t.strike(judge.Fault{Kills: true}, w)
	return t.employ(ctx, slot)
}

func (t *trial) pause(ctx context.Context) (err error) {
	if t.struck, err = t.busy(ctx); err != nil {
		return err
	}
	w := t.now[t.struck]
	w.Pause()
	t.strike(judge.Fault{}, w)
	return nil
}

func (t *trial) resume(context.Context) error {
	w := t.now[t.struck]
	i := slices.IndexFunc(t.faults, func(f judge.Fault) bool { return slices.Contains(f.Processes, w.PID()) })
	t.faults[i].Still = proc.Now() - t.faults[i].At
	w.Resume()
	return nil
}

// terminate replaces a worker that has a signal to end. It has done so when terminate returns.
func (t *trial) terminate(ctx context.Context, slot int) error {
	w := t.now[slot]
	t.strike(judge.Fault{}, w)
	if err := signal(w.Server, syscall.SIGTERM); err != nil {
		return err
	}
	if err := t.employ(ctx, slot); err != nil {
		return err
	}
	if err := ended(ctx, w.Server); err != nil {
		return err
	}
	t.strike(judge.Fault{Kills: true}, w)
	return nil
}

// shutDown ends the server, and keeps its folder.
func (t *trial) shutDown(ctx context.Context) error {
	t.strike(judge.Fault{}, t.now...)
	if err := signal(t.server, t.quit); err != nil {
		return err
	}
	return ended(ctx, t.server)
}

func (t *trial) cut(ctx context.Context) (err error) {
	if t.struck, err = t.busy(ctx); err != nil {
		return err
	}
	t.strike(judge.Fault{}, t.now[t.struck])
	t.gates[t.struck].Kill()
	return nil
}

func (t *trial) mend(ctx context.Context) error {
	return t.gates[t.struck].Start(ctx)
}

func signal(s *proc.Server, sig os.Signal) error {
	process, err := os.FindProcess(s.PID())
	if err != nil {
		return err
	}
	return process.Signal(sig)
}

// ended waits until a process has ended.
func ended(ctx context.Context, s *proc.Server) error {
	return expect.Until(ctx, func() error {
		if s.Gone() == nil {
			return errors.New("it still runs")
		}
		return nil
	})
}
