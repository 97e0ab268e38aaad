// Command lockctl is for operators: it shows who holds which lock, who waits, and why a task does
// not run. It also takes a lock from its holder, and looks for faults of the whole installation.
//
//	lockctl list
//	lockctl why 77ab09
//	lockctl release order:536365 --reason 'the worker hangs, see the incident of today'
//	lockctl doctor
//
// Each command explains itself with --help.
package main

import (
	"os"

	"github.com/sidingq/siding/internal/cli"
)

func main() {
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	cli.Main("lockctl", a.run)
}
