// Command worker runs a worker of the demo shop. With --demo it needs nothing but itself: see
// worker --help.
//
// The settings, the dashboard, the probes and the draining are those of package worker. This
// command adds the shop's tasks, their ledger and the demo.
package main

import "os"

func main() {
	a := &app{stdout: os.Stdout, stderr: os.Stderr}
	a.program(os.Environ()).Main()
}
