package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/sidingq/siding/bench/internal/trace"
)

// many is how many tasks the contenders in Node enqueue with one call.
const many = 100

// A message is what the process writes.
type message struct {
	Event string
	Sent  int64
	CPU   time.Duration
	Left  int
	Trace struct {
		Began          time.Duration
		Called, Stored []*time.Duration // null for never
		Runs           [][3]int64
	}
}

// inNode returns what runs a queue in a Node process, of which the package node has the program.
func inNode(queue string) func(context.Context, course) (outcome, error) {
	return func(ctx context.Context, c course) (_ outcome, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		p, err := startProcess(ctx, c.node)
		if err != nil {
			return outcome{}, err
		}
		defer func() {
			cancel()
			_ = p.cmd.Wait() // it ends by a signal if it has not ended before
			if err != nil {
				err = fmt.Errorf("node: %w\n%s", err, p.errors)
			}
		}()
		return p.run(ctx, queue, c)
	}
}

// A process is a running Node program.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Writer
	stdout *bufio.Reader
	errors *bytes.Buffer
}

func startProcess(ctx context.Context, folder string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, "node", "main.mjs"), errors: new(bytes.Buffer)}
	p.cmd.Dir = folder
	p.cmd.Stderr = p.errors
	p.cmd.WaitDelay = time.Second
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.stdout = in, bufio.NewReader(out)
	return p, p.cmd.Start()
}

func (p *process) run(ctx context.Context, queue string, c course) (outcome, error) {
	asked, err := c.encode(queue)
	if err != nil {
		return outcome{}, err
	}
	if _, err := p.ask(asked, "ready"); err != nil {
		return outcome{}, err
	}
	if err := c.begin(ctx); err != nil {
		return outcome{}, err
	}
	ended, err := p.ask("go", "ended")
	if err != nil {
		return outcome{}, err
	}
	if err := c.end(ctx); err != nil {
		return outcome{}, err
	}
	stopped, err := p.ask("stop", "stopped")
	if err != nil {
		return outcome{}, err
	}
	o := outcome{Trace: stopped.trace(), sent: ended.Sent, cpu: ended.CPU}
	o.Left = stopped.Left
	return o, nil
}

// ask sends a line and waits for the answer.
func (p *process) ask(line any, want string) (message, error) {
	text, err := json.Marshal(line)
	if err != nil {
		return message{}, err
	}
	if _, err := p.stdin.Write(append(text, '\n')); err != nil {
		return message{}, err
	}
	text, err = p.stdout.ReadBytes('\n')
	if err != nil {
		return message{}, fmt.Errorf("want %s: %w", want, err)
	}
	var m message
	if err := json.Unmarshal(text, &m); err != nil {
		return message{}, fmt.Errorf("%w in %s", err, text[:min(len(text), 200)])
	}
	if m.Event != want {
		return message{}, errors.New("want " + want + ", have " + m.Event)
	}
	return m, nil
}

// encode returns the course as the program reads it, times in nanoseconds.
func (c course) encode(queue string) (map[string]any, error) {
	host, port, err := net.SplitHostPort(c.redis)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"queue": queue, "host": host, "port": number, "batch": many,
		"workers": c.plan.Workers, "stored": c.plan.Stored, "limit": c.limit, "tasks": c.plan.Tasks,
	}, nil
}

func (m message) trace() trace.Trace {
	times := func(from []*time.Duration) []time.Duration {
		all := make([]time.Duration, len(from))
		for i, at := range from {
			all[i] = trace.Never
			if at != nil {
				all[i] = *at
			}
		}
		return all
	}
	t := trace.Trace{Began: m.Trace.Began, Called: times(m.Trace.Called), Stored: times(m.Trace.Stored)}
	for _, r := range m.Trace.Runs {
		t.Runs = append(t.Runs, trace.Run{Task: int(r[0]), Start: time.Duration(r[1]), End: time.Duration(r[2])})
	}
	return t
}
