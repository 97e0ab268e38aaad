// Package program starts and ends the commands of this module, all in the same way.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sidingq/siding/bench/internal/delay"
)

// Run runs a command until it is done, or interrupted, and returns its exit code. An error
// goes to standard error, under the command's name. A process that is to be a proxy is that instead.
func Run(name string, command func(ctx context.Context, args []string, stdout, stderr io.Writer) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if delay.Asked() {
		command = delay.Main
	}
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return 1
}

// Flags are those of a command. All have -json.
type Flags struct {
	*flag.FlagSet

	JSON bool
}

// NewFlags returns the flags of a command, which tell of themselves on stderr.
func NewFlags(name string, stderr io.Writer) *Flags {
	f := &Flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError)}
	f.SetOutput(stderr)
	f.BoolVar(&f.JSON, "json", false, "write JSON lines and no table")
	return f
}

// Read reads the arguments, which have to be flags. Setting is for what is measured, and on what: stdout, or stderr where
// lines of JSON go to stdout.
func (f *Flags) Read(args []string, stdout, stderr io.Writer) (setting io.Writer, err error) {
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("want no arguments, have %q", f.Args())
	}
	if f.JSON {
		return stderr, nil
	}
	return stdout, nil
}
