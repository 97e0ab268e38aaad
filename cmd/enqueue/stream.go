package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// maxStreamLine bounds a line of a stream, in bytes: the largest payload, twice
// because blanks and escapes do not count there, and its options.
const maxStreamLine = 2*queue.MaxPayload + 4<<10

func (a *app) streamCommand() *cobra.Command {
	in := input{command: "stream", name: "-"}
	cmd := &cobra.Command{
		Use:   "stream [FILE|-]",
		Short: "Enqueue tasks from JSON lines",
		Long: `Enqueue tasks from JSON lines, read from a file or from stdin:

  {"kind":"order:audit","payload":{"order":"536365"},"queue":"critical","delay":"5s"}

kind and payload are needed; queue, id, delay, at, unique, retries, timeout,
deadline and retention mean what the flags of "enqueue task" mean. Blank lines
are passed over. A bad line is refused by its number and does not stop the rest.

` + resumeHelp + `

The same for lines from stdin or from a pipe is up to the ids in the lines: they
have no checkpoint, and a line without an id gets a random one.`,
		Example: `  enqueue stream tasks.jsonl
  my-export | enqueue stream`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				in.name = args[0]
			}
			return a.stream(cmd.Context(), in)
		},
	}
	cmd.Flags().StringVar(&in.queue, "queue", "", `name of the queue for lines that name none (default "default")`)
	in.addFlags(cmd.Flags())
	return cmd
}

func (a *app) stream(ctx context.Context, in input) error {
	if err := checkFlags(&queue.Options{Queue: in.queue}); err != nil {
		return err
	}
	if in.name == "-" {
		return a.streamOnce(ctx, in, a.stdin)
	}
	f, regular, err := openRegular(in.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if !regular {
		return a.streamOnce(ctx, in, f)
	}
	if in.content, err = fingerprint(ctx, f); err == nil {
		err = rewind(f)
	}
	if err != nil {
		return fault(fmt.Errorf("%s: %w", in.name, err))
	}
	sum := sha256.New()
	decoder := streamDecoder{queue: in.queue, content: in.content}
	in.items = unchanged(decoder.items(io.TeeReader(f, sum), false), in.content, sum)
	return a.feed(ctx, in)
}

// streamOnce enqueues the lines of what can be read only once, as they come.
func (a *app) streamOnce(ctx context.Context, in input, r io.Reader) error {
	if in.restart {
		return fmt.Errorf("--restart: want a file that can be read twice, which has a checkpoint, have %q", in.name)
	}
	in.items = streamDecoder{queue: in.queue}.items(interruptible(ctx, r), true)
	return a.feed(ctx, in)
}

// A streamLine is one line of a stream.
type streamLine struct {
	Kind    string          `json:"kind"`
	Payload json.RawMessage `json:"payload"`
	taskOptions
}

// A streamDecoder makes items of lines.
type streamDecoder struct {
	queue string // for lines that name none
	// content is that of the file, from which the ids of lines that have none
	// are derived; zero for random ids.
	content content
}

// items yields the tasks of the lines that r reads. When live is set, it yields
// a pause before each wait for input, so that no task waits for a batch to fill.
func (d streamDecoder) items(r io.Reader, live bool) source {
	return func(yield func(item, error) bool) {
		in := bufio.NewReaderSize(r, maxStreamLine)
		for number := 1; ; number++ {
			if live && !lineAtHand(in) && !yield(item{pause: true}, nil) {
				return
			}
			line, long, err := readLine(in)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(item{}, fmt.Errorf("line %d: %w", number, err))
				return
			}
			if number == 1 {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			line = bytes.TrimSpace(line)
			if len(line) == 0 && !long {
				continue
			}
			it := item{line: number, through: number}
			if long {
				it.refused = fmt.Errorf("want a line of at most %d bytes", maxStreamLine)
			} else {
				it.job, it.refused = d.decode(number, line)
			}
			if !yield(it, nil) {
				return
			}
		}
	}
}

// lineAtHand reports whether a whole line can be read without waiting.
func lineAtHand(in *bufio.Reader) bool {
	ahead, _ := in.Peek(in.Buffered()) // cannot fail: it is there
	return bytes.IndexByte(ahead, '\n') >= 0
}

// readLine returns the next line, which is valid until the next call. long says
// that it does not fit the buffer and was passed over. The error is io.EOF only
// when there is no line.
func readLine(in *bufio.Reader) (line []byte, long bool, err error) {
	line, err = in.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		long = true
		_, err = in.ReadSlice('\n')
	}
	if errors.Is(err, io.EOF) && (long || len(line) > 0) {
		err = nil
	}
	return line, long, err
}

// decode makes a job of a line.
func (d streamDecoder) decode(number int, text []byte) (queue.Job, error) {
	var line streamLine
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&line); err != nil {
		return queue.Job{}, lineError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return queue.Job{}, errors.New("want one JSON object on the line, have more behind it")
	}
	if line.Kind == "" {
		return queue.Job{}, errors.New(`field "kind" is empty`)
	}
	task, err := tasks.Decode(line.Kind, line.Payload)
	if err != nil {
		return queue.Job{}, err
	}
	opts, err := line.options()
	if err != nil {
		return queue.Job{}, err
	}
	if opts.Queue == "" {
		opts.Queue = d.queue
	}
	if opts.TaskID == "" && d.content.hash != "" {
		opts.TaskID = fmt.Sprintf("%d:%s-%s", number, line.Kind, d.content.short())
	}
	return queue.Job{Task: task, Options: opts}, nil
}

// lineError says in the line's own terms what the decoder says in Go's. It does
// not show the line, which may be long and is in the file.
func lineError(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return fmt.Errorf("want a JSON object, have %s", e.Value)
		}
		// The decoder names embedded structs on the way, too.
		field, want := e.Field[strings.LastIndexByte(e.Field, '.')+1:], "a string"
		if field == "retries" {
			want = "a whole number"
		}
		return fmt.Errorf("field %q is of the wrong type: want %s, have %s", field, want, e.Value)
	}
	// The decoder has no type for an unknown field, only this text.
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("field %s is not known", clip(field))
	}
	return fmt.Errorf("want a JSON object: %w", err)
}
