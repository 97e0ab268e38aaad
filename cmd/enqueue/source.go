package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"

	"github.com/sidingq/siding/queue"
)

// An item is what a source makes of one line, or a part of it.
type item struct {
	job queue.Job
	// refused is why the line cannot be a task; job is then empty.
	refused error
	// line is the line that the item is about, to be told when it is refused.
	line int
	// through is the last line that the source had looked at. It never falls,
	// and when it rises all items of the lines before have been yielded.
	through int
	// pause says that nothing more may come for a while; all else is empty.
	pause bool
}

// A source yields the items of its input in order. A pair with an error is a
// fault of the input, and the last.
type source = iter.Seq2[item, error]

// content identifies what a file holds.
type content struct {
	hash  string // SHA-256, in hexadecimal digits
	lines int    // roughly: how many line ends it has
}

// short begins the ids of a file's tasks: 64 bits, too many for two files that
// somebody has to be the same by chance.
func (c content) short() string { return c.hash[:16] }

// fingerprint reads r to its end, or until ctx ends.
func fingerprint(ctx context.Context, r io.Reader) (content, error) {
	sum, lines := sha256.New(), 0
	buf := make([]byte, 64<<10)
	for {
		if ctx.Err() != nil {
			return content{}, errInterrupted
		}
		n, err := r.Read(buf)
		sum.Write(buf[:n])
		lines += bytes.Count(buf[:n], []byte("\n"))
		if errors.Is(err, io.EOF) {
			return content{hash: hexSum(sum), lines: lines}, nil
		}
		if err != nil {
			return content{}, err
		}
	}
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// unchanged yields what items yields and, when they have come to their end, an
// error if the text that went through sum meanwhile is not that of want: the
// ids of the tasks and the checkpoint would be those of another file.
func unchanged(items source, want content, sum hash.Hash) source {
	return func(yield func(item, error) bool) {
		for it, err := range items {
			if !yield(it, err) {
				return
			}
		}
		if hexSum(sum) != want.hash {
			yield(item{}, errors.New("the file was changed while it was being read"))
		}
	}
}

// openRegular opens a file that can be read twice. ok is false, and the file
// open all the same, when it is a pipe or the like.
func openRegular(name string) (f *os.File, ok bool, err error) {
	f, err = os.Open(name)
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s: want a file, have a folder", name)
	}
	if err != nil {
		_ = f.Close() // nothing was read from it
		return nil, false, err
	}
	return f, info.Mode().IsRegular(), nil
}

// readTwice opens a file that can be read twice. The text of stdin (-) and of what is no regular
// file is first copied to a temporary one. done closes the file, and removes that one.
func (a *app) readTwice(ctx context.Context, name string) (f *os.File, done func(), err error) {
	from := a.stdin
	if name != "-" {
		f, regular, err := openRegular(name)
		if err != nil {
			return nil, nil, err
		}
		if regular {
			return f, func() { _ = f.Close() }, nil // only read
		}
		defer f.Close()
		from = f
	}
	f, err = os.CreateTemp("", "siding-orders-")
	if err != nil {
		return nil, nil, fault(err)
	}
	// Where a file that is open may be removed, nothing is left of it however the program ends.
	_ = os.Remove(f.Name())
	done = func() {
		_ = f.Close() // nobody needs it any more
		_ = os.Remove(f.Name())
	}
	_, err = io.Copy(f, interruptible(ctx, from))
	if err == nil {
		err = rewind(f)
	}
	if err != nil {
		done()
		if ctx.Err() != nil {
			err = errInterrupted
		}
		return nil, nil, fault(fmt.Errorf("%s: %w", name, err))
	}
	return f, done, nil
}

// rewind goes back to the beginning of a file that has been read once.
func rewind(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// interruptible returns a reader of in whose Read returns ctx's error once that
// has ended, although reading a terminal or a pipe cannot be interrupted. The
// goroutine behind it then waits for the next input, or the end of the process.
func interruptible(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	return r
}
