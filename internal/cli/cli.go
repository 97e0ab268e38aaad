// Package cli is what the programs for people at a terminal have in common: exit statuses, the form of
// error messages, and a client of Redis that gives up soon.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/config"
)

// The exit statuses of all programs. A program may have more.
const (
	StatusOK    = 0 // all is well
	StatusFault = 1 // something has failed
	StatusUsage = 2 // the command line or a setting is wrong; a panic of Go ends with 2, too, unless GOTRACEBACK=crash has it abort
)

// A statusError ends the program with an exit status, and with the message of its error unless that
// is nil. Any other error is about the command line or a setting.
type statusError struct {
	status int
	error
}

func (e *statusError) Unwrap() error { return e.error }

// Exit returns an error that ends the program with the status. [Run] prints err unless it is nil.
func Exit(status int, err error) error { return &statusError{status, err} }

// Fault is [Exit] with [StatusFault].
func Fault(err error) error { return Exit(StatusFault, err) }

// Run runs the program with the arguments and returns its exit status. It prints the error of the
// program to stderr. After an error that is not from [Exit] or [Fault], it also names the help.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	AddVersion(root)
	root.InitDefaultHelpCmd()
	if help, _, _ := root.Find([]string{"help"}); help != root { // that of cobra ends well if there is no such command
		help.Args = func(_ *cobra.Command, args []string) error {
			if cmd, rest, _ := root.Find(args); len(rest) > 0 {
				return Subcommand(cmd, rest)
			}
			return nil
		}
	}
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return StatusOK
	}
	// If the terminal has gone, so has the message. The status remains.
	ended, ok := errors.AsType[*statusError](err)
	if !ok {
		_, _ = fmt.Fprintf(stderr, "%s: %v\nRun '%s --help' for usage.\n", root.Name(), err, cmd.CommandPath())
		return StatusUsage
	}
	if ended.error != nil {
		lines := strings.Split(ended.Error(), "\n")
		for i, line := range lines {
			lines[i] = Plain(line)
		}
		_, _ = fmt.Fprintf(stderr, "%s: %s\n", root.Name(), strings.Join(lines, "\n"))
	}
	return ended.status
}

// None returns an error unless a command has no arguments. It is for [cobra.Command].Args.
func None(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("want no arguments, have %q", args)
	}
	return nil
}

// Subcommand returns an error that says which of its commands a command wants. An argument is a misspelt one. It is for
// [cobra.Command].Args of a command that does nothing by itself.
func Subcommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			names = append(names, c.Name())
		}
	}
	if len(args) > 0 {
		return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), config.Suggest(args[0], names))
	}
	last := len(names) - 1
	return fmt.Errorf("want a command: %s or %s", strings.Join(names[:last], ", "), names[last])
}

// One returns an error unless a command has one argument. It is for [cobra.Command].Args.
func One(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return Misused(cmd, args)
	}
	return nil
}

// Misused is the error of a command that has too many arguments, or too few.
func Misused(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want %q, have no arguments", cmd.Use)
	}
	return fmt.Errorf("want %q, have %q", cmd.Use, args)
}
