package asynqredis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed silent.lua
	silentSource string
	//go:embed recover.lua
	recoverSource string
	//go:embed begin.lua
	beginSource string
	//go:embed lease.lua
	leaseSource string
	//go:embed lost.lua
	lostSource string

	silentScript  = ownScript(silentSource)
	expiredScript = newScript(silentSource) // the same, sent through a hook
	recoverScript = ownScript(bellSource + encodedSource + recoverSource)
	beginScript   = ownScript(beginSource)
	leaseScript   = ownScript(leaseSource)
	lostScript    = ownScript(lostSource)
)

// silence is what is left, in seconds, of a lease that is not being renewed. asynq
// renews the leases of running tasks every 5 s, each time for 30 s: a live worker's
// end between 25 and 30 s from now, and 18 s are two beats missed, with 2 s for
// what is slow and for clocks that differ.
const silence = 18

// leaseFor is how long asynq's leases last.
const leaseFor = 30 * time.Second

// Lease gives a lease to the active tasks of a queue that have none, as they may after Redis has
// lost writes, and returns how many it found. If no worker renews it, they fall silent like others.
func Lease(ctx context.Context, rdb redis.Scripter, queue string) (int, error) {
	n, err := leaseScript.Run(ctx, rdb, []string{activeKey(queue), leaseKey(queue)}, int(leaseFor.Seconds())).Int()
	if err != nil {
		return 0, fmt.Errorf("asynqredis: look for tasks of %s without a lease: %w", queue, err)
	}
	return n, nil
}

// SilentBatch is how many silent tasks are listed in one call.
const SilentBatch = 100

// A SilentTask is one that a worker took and whose lease nobody renews: the
// worker has died, is paused or cut off, or never got Redis' answer.
type SilentTask struct {
	Queue, ID string
	Type      string
	Payload   []byte
	Headers   map[string]string
	Retries   int  // how often it may be retried in all
	Crashes   int  // how often it has been put back by [Recover]
	Begun     bool // its handler had begun, says [Attempt.Begin]

	attempt string
	encoded string
}

// Known reports whether enough is known of t to put it back: it was dequeued
// through the hook, and can be read.
func (t SilentTask) Known() bool { return t.attempt != "" && t.Type != "" }

// Silent returns the tasks of a queue that have fallen silent, those first whose
// lease ends first, at most [SilentBatch] from the one after skip on.
func Silent(ctx context.Context, rdb redis.Scripter, queue string, skip int) ([]SilentTask, error) {
	rows, err := silentScript.Run(ctx, rdb, []string{leaseKey(queue)}, prefix(queue)+"t:", silence, skip, SilentBatch).Slice()
	if err != nil {
		return nil, fmt.Errorf("asynqredis: list silent tasks of %s: %w", queue, err)
	}
	found := make([]SilentTask, len(rows))
	for i, row := range rows {
		found[i] = silentTask(queue, row)
	}
	return found, nil
}

func silentTask(queue string, row any) SilentTask {
	cells, _ := row.([]any)
	var text [5]string
	for i := range min(len(text), len(cells)) {
		text[i], _ = cells[i].(string)
	}
	t := SilentTask{Queue: queue, ID: text[0], attempt: text[1], encoded: text[2]}
	t.Crashes, _ = strconv.Atoi(text[3])
	t.Begun = text[4] != "" && text[4] == t.attempt
	msg := []byte(t.encoded)
	kind, err1 := field(msg, fieldType)
	payload, err2 := field(msg, fieldPayload)
	retries, err3 := number(msg, fieldRetry)
	with, err4 := headers(msg)
	if errors.Join(err1, err2, err3, err4) == nil {
		t.Type, t.Payload, t.Retries, t.Headers = kind, []byte(payload), int(retries), with //nolint:gosec // asynq's is an int32
	}
	return t
}

// Recover puts t back at the tail of pending, as one crash more and at no other
// charge, with reason and its own last failure as its last error. False: it is not silent any more, or
// somebody else has put it back, or it is not [SilentTask.Known].
func Recover(ctx context.Context, rdb redis.Scripter, t SilentTask, reason string) (bool, error) {
	if !t.Known() {
		return false, nil
	}
	moved, err := recoverScript.Run(ctx, rdb,
		[]string{taskKey(t.Queue, t.ID), activeKey(t.Queue), leaseKey(t.Queue), pendingKey(t.Queue), bellKey(t.Queue)},
		t.ID, t.attempt, silence, reason, t.Crashes+1).Bool()
	if err != nil {
		return false, fmt.Errorf("asynqredis: recover %s: %w", t.ID, err)
	}
	return moved, nil
}

// Begin writes down in Redis that a's handler is about to begin. False: a is not
// the task's latest attempt any more. After an error it may be written or not: the
// handler must not begin, and [Attempt.NotBegun] is to be called until it succeeds.
func (a *Attempt) Begin(ctx context.Context, rdb redis.Scripter) (latest bool, err error) {
	return a.mark(ctx, rdb, 1)
}

// NotBegun takes back what Begin has written.
func (a *Attempt) NotBegun(ctx context.Context, rdb redis.Scripter) error {
	_, err := a.mark(ctx, rdb, 0)
	return err
}

func (a *Attempt) mark(ctx context.Context, rdb redis.Scripter, begins int) (latest bool, err error) {
	latest, err = beginScript.Run(ctx, rdb, []string{taskKey(a.Queue, a.ID)}, a.name, begins).Bool()
	if err != nil {
		return false, fmt.Errorf("asynqredis: begin %s: %w", a.ID, err)
	}
	return latest, nil
}

// Lost counts that a has lost its lock, and returns how often attempts of its task have by now; 0
// when a is not the task's latest attempt any more.
func (a *Attempt) Lost(ctx context.Context, rdb redis.Scripter) (times int, err error) {
	times, err = lostScript.Run(ctx, rdb, []string{taskKey(a.Queue, a.ID)}, a.name).Int()
	if err != nil {
		return 0, fmt.Errorf("asynqredis: count a loss of %s: %w", a.ID, err)
	}
	return times, nil
}
