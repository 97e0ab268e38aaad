package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/taskredis"
)

// A HeldLine is a line that waits for its first task, as that has failed; see [queue.Policy.OnFailure]. [queue.RetryHeld] and
// [queue.SkipHeld] set it going.
type HeldLine struct {
	Resource string `json:"resource"`
	// Task holds the line.
	Task Task `json:"task"`
	// Stopped says that the task is archived, and that the line waits for an operator. Otherwise it runs again at GoesOn.
	Stopped bool      `json:"stopped"`
	GoesOn  time.Time `json:"goes_on,omitzero"`
	// Since is when the task failed last, and Error how. If the end of its last attempt was no failure of its own, such as a lost lock,
	// Since is zero, and Error says what it was.
	Since time.Time `json:"since,omitzero"`
	Error string    `json:"error"`
	// Waiting is how many tasks of the queue wait behind it.
	Waiting int `json:"waiting"`
}

// HeldLines lists the held lines: those that have stopped, and then those that are held until a retry, by when they go on. leftOut
// is how many it has left out at the end of these, if a queue has more than 500.
func (i *Inspector) HeldLines(ctx context.Context) (lines []HeldLine, leftOut int, _ error) {
	queues, err := taskredis.QueueNames(ctx, i.rdb)
	if err != nil {
		return nil, 0, fmt.Errorf("inspect: %w", err)
	}
	lines, leftOut, err = i.heldLines(ctx, queues, "")
	slices.SortFunc(lines, func(a, b HeldLine) int { // a stopped one has no time at which it goes on
		return cmp.Or(a.GoesOn.Compare(b.GoesOn), strings.Compare(a.Resource, b.Resource))
	})
	return lines, leftOut, err
}

func (i *Inspector) heldLines(ctx context.Context, queues []string, lock string) (lines []HeldLine, leftOut int, _ error) {
	all, leftOut, err := taskredis.HeldLines(ctx, i.rdb, queues, lock)
	if err != nil {
		return nil, 0, fmt.Errorf("inspect: %w", err)
	}
	for _, l := range all {
		m := l.Message
		lines = append(lines, HeldLine{
			Resource: i.resourceOf(l.Lock, m), Task: Task{Queue: l.Queue, ID: l.ID, Kind: m.Type}, Stopped: l.Until.IsZero(), GoesOn: utc(l.Until),
			Since: utc(unix(m.LastFailedAt)), Error: m.ErrorMsg, Waiting: l.Waiting,
		})
	}
	return lines, leftOut, nil
}

// findLine finds out whether the line of a task is held, by it or by the one before it.
func (f *fleet) findLine(ctx context.Context, x *exam) error {
	if x.key == "" || x.State == "pending" || !x.Holds && !x.waits() {
		return nil
	}
	lines, _, err := f.heldLines(ctx, []string{x.Queue}, x.key)
	if err == nil && len(lines) > 0 {
		x.line = &lines[0]
	}
	return err
}

// held is the verdict of a task whose line is held.
func (j judge) held() Verdict {
	l := j.x.line
	reason := strings.TrimSuffix(l.Error, ".")
	own := l.Task.ID == j.x.ID
	v := Verdict{Do: fmt.Sprintf("Mend the cause, then `lockctl run %s` runs it now; `lockctl archive --reason TEXT %[1]s` gives it up, and the line goes on.", ShellArg(l.Task.ID))}
	switch {
	case own && l.Stopped:
		v.Wrong = fmt.Sprintf("Yes: the task is archived: %s. It has stopped the line of %s, in which %s.", reason, j.x.resource, waitingNow(l.Waiting))
		v.Clears = "Not by itself: an operator has to have it run, or to give it up."
	case own:
		v.Wrong = fmt.Sprintf("Yes: the task has failed: %s. It holds the line of %s, in which %s.", reason, j.x.resource, waitingNow(l.Waiting))
		v.Clears = fmt.Sprintf("It runs again %s, as retry %d of %d.%s", j.at(l.GoesOn), j.e.Retried, j.e.Retries, j.unlessStuck())
	case l.Stopped:
		v.Wrong = fmt.Sprintf("Yes: the line of %s is stopped by the task %s, which is archived: %s.", j.x.resource, l.Task.ID, reason)
		v.Clears = "Not by itself: an operator has to have that task run, or to give it up." + j.before()
	default:
		v.Wrong = fmt.Sprintf("No: the line of %s waits for the task %s, which has failed: %s.", j.x.resource, l.Task.ID, reason)
		v.Clears = fmt.Sprintf("That task runs again %s, and then those behind it, in their order.%s", j.at(l.GoesOn), j.before())
	}
	return v
}
