// Command enqueue stores tasks in Redis for Siding's workers.
//
//	enqueue task order:audit --payload '{"order":"536365"}'
//	enqueue stream tasks.jsonl
//	enqueue orders online_retail.csv.gz --dry-run
//
// Each command explains itself with --help, also how it goes on after an
// interrupt and enqueues nothing twice.
package main

import (
	"os"

	"github.com/sidingq/siding/internal/cli"
)

func main() {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
	cli.Main("enqueue", a.run)
}
