// Package worker makes a complete program of your task handlers. [Main] is its whole main
// function:
//
//	func main() {
//		worker.Main(func(s *queue.Server) { queue.Handle(s, audit) })
//	}
//
// Any number of such programs on one Redis form a fleet. Programs of other kinds of tasks on other
// queues may be part of it.
//
// # Settings
//
// Settings come from flags (--lock-ttl), from the environment (SIDING_LOCK_TTL) and from a file, in
// this order. --config or SIDING_CONFIG names the file. Otherwise the worker reads config.yaml in
// its folder, if there is one. The config.yaml of this repository has every setting with its
// default and meaning; --help lists the flags. An unknown setting is an error. A fleet may share
// one file: the worker checks what it does not use, such as ledger.dsn, and ignores it.
//
// # Dashboard and probes
//
// The worker serves the dashboard, /healthz and /readyz at http.address (127.0.0.1:8080). While the
// process serves, /healthz answers 200. While the worker takes tasks, /readyz answers 200, and
// otherwise 503. If other machines can reach the address, the dashboard needs a password.
//
// # Log
//
// The program logs to standard error, as log.level and log.format say. [Main] makes that the default of log/slog, so lines
// of your handlers by slog, and by package log, have the same level and form.
//
// # Signals and exit statuses
//
// SIGTERM and SIGINT drain the worker: it takes no more tasks, and the running ones may
// finish. After shutdown.timeout the worker gives them back to the queue. After
// shutdown.hard_deadline, or at a second signal, the process ends at once. Unfinished tasks
// then run again elsewhere.
//
// The exit status is
//
//   - 0 after a complete drain, and after --help;
//   - 1 after a fault: Redis does not answer at the start, the address is taken, no task has a
//     handler, the drain did not end in time, or a second signal came;
//   - 2 if the command line or a setting is wrong. Standard error has a line for each mistake,
//     with its place. A panic has this status as well.
package worker

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/sidingq/siding/internal/member"
	"github.com/sidingq/siding/queue"
)

// Main runs a worker as this process, and never returns. Main calls register once, before the
// worker takes tasks. register calls [queue.Handle] for each kind of task; to register none is a
// fault.
func Main(register func(*queue.Server)) {
	member.Program{
		Name:    strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"),
		Environ: os.Environ(),
		Serve:   func(ctx context.Context, m *member.Member) error { return m.Run(ctx, register, nil) },
	}.Main()
}
