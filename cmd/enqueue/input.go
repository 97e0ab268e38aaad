package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/sidingq/siding/tasks/orders"
)

// defaultQueue is the queue of tasks that name none, as in [queue.Options].
const defaultQueue = "default"

// keptFor is how long tasks from a file are kept after their success. It leaves time to start again after a crash, or a lost answer,
// with nothing enqueued twice. Redis still forgets a large file soon.
const keptFor = 10 * time.Minute

// resumeHelp is part of the help of the commands that read files.
const resumeHelp = `Interrupted or failed, run the same command again, without --restart: it goes on
where it stopped and enqueues nothing twice. After each batch it saves a checkpoint
in Redis, under the hash of the file's content and the queue, for 30 days, and leaves
out what that covers. The id of each task is derived from that hash and the line, and
while Redis has a task of an id there is no second one. The limit: this program ended
after a batch and before its checkpoint (kill -9, power, a lost answer), workers have
finished tasks of that batch, and their retention has passed before the next run.
Then these are enqueued again. The journal of the ledger knows the ids and refuses
the second effect. A file with other content is another file: if lines are added to
one, all of them are enqueued.`

// errInterrupted is the end of a run whose context has ended.
var errInterrupted = errors.New("interrupted")

// An input is a file or stdin, and what to do with it.
type input struct {
	command string
	name    string // the file's, or "-" for stdin
	queue   string
	jobs    source
	// content is that of a file that can be read twice. Others have none, and no
	// checkpoint.
	content content
	restart bool
	// counts, if set, returns what an order file holds.
	counts func() orders.Counts
}

// addFlags adds the flags of the commands that read files.
func (in *input) addFlags(f *pflag.FlagSet) {
	f.StringVar(&in.queue, "queue", "", `name of the queue for tasks that name none (default "default")`)
	f.BoolVar(&in.restart, "restart", false, "forget the checkpoint of this file and begin at its first line")
}

// open opens the file of an input. The file is nil for stdin.
func (a *app) open(in input) (from io.Reader, f *os.File, err error) {
	if in.name == "-" {
		return a.stdin, nil, nil
	}
	if in.name == "" {
		return nil, nil, errors.New("want the path of a file, or -, have nothing")
	}
	f, err = os.Open(in.name)
	return f, f, err
}

// regular reports whether f can be read twice.
func regular(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// copied returns a temporary file with the text of from. The caller removes it.
func copied(ctx context.Context, from io.Reader) (*os.File, error) {
	f, err := os.CreateTemp("", "siding-orders-")
	if err != nil {
		return nil, err
	}
	// Many systems let an open file be removed: nothing is left however the program ends.
	_ = os.Remove(f.Name())
	if _, err = io.Copy(f, interruptible(ctx, from)); err != nil {
		remove(f)
		return nil, err
	}
	return f, nil
}

func remove(f *os.File) {
	_ = f.Close() // nobody needs it any more
	_ = os.Remove(f.Name())
}

// content identifies what a file holds.
type content struct {
	hash  string // SHA-256, in hexadecimal digits
	lines int    // roughly: how many line ends it has
}

// short identifies the file in the ids of its tasks. The checksum has 64 bits, too many for two
// files of one user to share by chance.
func (c content) short() string { return c.hash[:16] }

// Write counts the line ends of text.
func (c *content) Write(text []byte) (int, error) {
	c.lines += bytes.Count(text, []byte("\n"))
	return len(text), nil
}

// fingerprint reads r to its end, or until ctx ends.
func fingerprint(ctx context.Context, r io.Reader) (c content, err error) {
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(sum, &c), interruptible(ctx, r))
	c.hash = hex.EncodeToString(sum.Sum(nil))
	return c, err
}

// errChanged is the end of a run whose file is another one by now.
var errChanged = errors.New("the file was changed while it was being read")

// unchanged reads a text for the second time. A text that differs from want ends with an error, as
// the ids of the tasks and the checkpoint are those of want.
type unchanged struct {
	text io.Reader
	sum  hash.Hash
	want content
}

func (u unchanged) Read(p []byte) (int, error) {
	n, err := u.text.Read(p)
	u.sum.Write(p[:n])
	if errors.Is(err, io.EOF) && hex.EncodeToString(u.sum.Sum(nil)) != u.want.hash {
		err = errChanged
	}
	return n, err
}

// twice reads the text of f for its content, and returns a reader of the same text. What is added to the file meanwhile is not read.
func twice(ctx context.Context, f *os.File, unpack func(io.Reader) (io.Reader, error)) (io.Reader, content, error) {
	size := int64(math.MaxInt64)
	begin := func() (io.Reader, error) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		return unpack(io.LimitReader(f, size))
	}
	text, err := begin()
	if err != nil {
		return nil, content{}, err
	}
	c, err := fingerprint(ctx, text)
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		text, err = begin()
	}
	return unchanged{text, sha256.New(), c}, c, err
}

// interruptible returns a reader of in that ends with ctx, although reading from a terminal or a
// pipe does not. The goroutine of the read then waits for the next input, or the end of the
// process.
func interruptible(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(errInterrupted) })
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	return r
}
