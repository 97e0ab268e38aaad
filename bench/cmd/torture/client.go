package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/system"
	"github.com/sidingq/siding/bench/internal/workload"
	"github.com/sidingq/siding/internal/sleep"
)

// A client is what enqueues the tasks of a trial.
type client interface {
	// enqueue enqueues all tasks, each key's in order.
	enqueue(ctx context.Context, tasks []task) error
	Left(ctx context.Context) (int, error)
	Close() error
}

func (t *trial) newClient(ctx context.Context) (client, error) {
	s := t.setting(t.near, "")
	if t.Needs == contest.Node {
		return nodeClient{t.node, s}, nil
	}
	q, err := t.open(ctx, s.config(nil))
	return goClient{q}, err
}

type goClient struct{ system.System }

// enqueue enqueues the tasks of each key one after the other. The server may be down for a while.
func (c goClient) enqueue(ctx context.Context, tasks []task) error {
	byKey := make(map[string][]int)
	for number, t := range tasks {
		byKey[t.Key] = append(byKey[t.Key], number)
	}
	var keys sync.WaitGroup
	for _, numbers := range byKey {
		keys.Go(func() {
			for _, number := range numbers {
				for c.Enqueue(ctx, []workload.Task{{ID: number, Key: tasks[number].Key}}) != nil {
					if sleep.For(ctx, 50*time.Millisecond) != nil {
						return
					}
				}
			}
		})
	}
	keys.Wait()
	return context.Cause(ctx)
}

// A nodeClient starts a Node process for each question.
type nodeClient struct {
	folder  string
	setting setting
}

func (c nodeClient) run(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "node", "torture.mjs", command, c.setting.String())
	cmd.Dir = c.folder
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("node torture.mjs %s: %w\n%s", command, err, failure.String())
	}
	return out.String(), nil
}

func (c nodeClient) enqueue(ctx context.Context, _ []task) error {
	_, err := c.run(ctx, "enqueue")
	return err
}

func (c nodeClient) Left(ctx context.Context) (int, error) {
	text, err := c.run(ctx, "left")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (nodeClient) Close() error { return nil }
