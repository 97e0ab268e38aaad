package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
	"github.com/sidingq/siding/tasks/orders"
)

// maxStreamLine bounds a line of a stream, in bytes. There is room for twice the largest payload,
// as blanks and escapes do not count there, and for the options.
const maxStreamLine = 2*queue.MaxPayload + 4<<10

func (a *app) streamCommand() *cobra.Command {
	in := input{command: "stream", name: "-"}
	var retention time.Duration
	cmd := &cobra.Command{
		Use:   "stream [FILE|-]",
		Short: "Enqueue tasks from JSON lines",
		Long: `Enqueue tasks from JSON lines, read from a file or from stdin:

  {"kind":"order:audit","payload":{"order":"536365"},"queue":"critical","delay":"5s"}
  {"kind":"order:ship","payload":{"order":"1001"},"resource":"order:1001"}

kind and payload are needed, and so is resource with a kind of your own: a text, or
a list if the task needs several at once. queue, id, delay, at, unique, unique_for,
debounce, max_delay, retries, timeout, deadline, retention, priority, on_busy,
max_wait, max_waiting, use_retries and on_failure mean what the flags of "enqueue
task" mean. Blank lines are skipped. A bad line is refused by its number and does not
stop the rest.

` + resumeHelp + `
A line that one run refused for its deadline counts as there already in the next.

Lines from stdin or from a pipe have no checkpoint, and one without an id gets a
random one: there only the ids in the lines keep a task from being enqueued twice.
So has one with a debounce, also in a file: if a run goes on after a fault, up to the
last batch of them comes again, and replaces those that still wait.`,
		Example: `  enqueue stream tasks.jsonl
  my-export | enqueue stream`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				in.name = args[0]
			}
			return a.stream(cmd.Context(), in, retention)
		},
	}
	cmd.Flags().DurationVar(&retention, "retention", keptFor, "keep tasks from a file for this long after their success, if their lines do not say how long")
	in.addFlags(cmd.Flags())
	return cmd
}

func (a *app) stream(ctx context.Context, in input, retention time.Duration) error {
	if err := checkFlags(&queue.Options{Queue: in.queue, Retention: retention}); err != nil {
		return err
	}
	from, f, err := a.open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	if f == nil || !regular(f) {
		if in.restart {
			return fmt.Errorf("--restart: want a file that can be read twice, which has a checkpoint, have %q", in.name)
		}
		in.jobs = streamDecoder{queue: in.queue}.jobs(interruptible(ctx, from), true)
		return a.feed(ctx, in)
	}
	from, in.content, err = twice(ctx, f, func(r io.Reader) (io.Reader, error) { return r, nil })
	if err != nil {
		return cli.Fault(fmt.Errorf("%s: %w", in.name, err))
	}
	in.jobs = streamDecoder{queue: in.queue, content: in.content, retention: retention}.jobs(from, false)
	return a.feed(ctx, in)
}

// A streamLine is one line of a stream.
type streamLine struct {
	taskText
	taskOptions
}

// A streamDecoder makes jobs of lines.
type streamDecoder struct {
	queue string // for lines that name none
	// content makes the ids of lines that have none. Without it they are random.
	content   content
	retention time.Duration // of lines of a file that have an id, and name none
}

// jobs yields the tasks of the lines that r reads. With live set, jobs yields a pause before each
// wait for input. So no task waits for a batch to fill.
func (d streamDecoder) jobs(r io.Reader, live bool) source {
	return func(yield func(orders.Job, error) bool) {
		in := bufio.NewReaderSize(r, maxStreamLine)
		for number := 1; ; number++ {
			if live && !lineAtHand(in) && !yield(orders.Job{}, nil) {
				return
			}
			line, err := in.ReadSlice('\n')
			for errors.Is(err, bufio.ErrBufferFull) { // the rest of a line that is too long
				_, err = in.ReadSlice('\n')
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield(orders.Job{}, fmt.Errorf("line %d: %w", number, err))
				return
			}
			if len(line) == 0 {
				return
			}
			job := orders.Job{Line: number, Through: number}
			if len(line) == maxStreamLine {
				err = fmt.Errorf("want a line of less than %d bytes", maxStreamLine)
			} else if line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff"))); len(line) > 0 {
				job.Job, err = d.decode(number, line)
			} else {
				continue
			}
			if err != nil {
				err = &orders.LineError{Line: number, Want: err.Error()}
			}
			if !yield(job, err) {
				return
			}
		}
	}
}

// lineAtHand reports whether a whole line can be read without waiting.
func lineAtHand(in *bufio.Reader) bool {
	ahead, _ := in.Peek(in.Buffered()) // no error: the bytes are there
	return bytes.IndexByte(ahead, '\n') >= 0
}

// decode makes a job of a line.
func (d streamDecoder) decode(number int, text []byte) (queue.Job, error) {
	if !utf8.Valid(text) { // the decoder would make one id of two
		return queue.Job{}, errors.New("want a line of UTF-8")
	}
	var line streamLine
	if err := tasks.Unmarshal(text, &line); err != nil {
		return queue.Job{}, err
	}
	task, err := line.decode()
	if err != nil {
		return queue.Job{}, err
	}
	opts, err := line.options()
	if err != nil {
		return queue.Job{}, err
	}
	opts.Queue = cmp.Or(opts.Queue, d.queue)
	if d.content.hash != "" && opts.TaskID == "" && opts.Debounce == "" {
		opts.TaskID = fmt.Sprintf("%d-%s", number, d.content.short()) // a kind may have what no id may have
	}
	if d.content.hash != "" && opts.TaskID != "" && line.Retention == "" { // without an id, what is sent again is another task
		opts.Retention = d.retention
	}
	return queue.Job{Task: task, Options: opts}, nil
}
