// Command table reads the reports of chaos runs, lines of JSON, from its standard
// input and writes the table of docs/reliability.md.
package main

import (
	"fmt"
	"os"

	"github.com/sidingq/siding/e2e/chaos"
)

func main() {
	reports, err := chaos.ReadReports(os.Stdin)
	if err == nil {
		err = chaos.WriteTable(os.Stdout, reports)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}
