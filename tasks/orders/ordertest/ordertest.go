// Package ordertest provides order files for tests. They are made up, in the format of the public
// Online Retail data set. SIDING_ORDERS may name a real one, too.
package ordertest

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sidingq/siding/internal/verify"
)

// Lines is the length of the made-up file of [Files].
const Lines = 10_000

// Files returns the order files that a test must read, by name. They are "generated", of [Lines]
// lines, and "real", if SIDING_ORDERS names one. Each function returns the path of its file. Call
// the function in the subtest that reads the file. The call makes the generated file, with the seed
// of the subtest. Files fails the test if SIDING_ORDERS names a file that is not there.
func Files(tb testing.TB) map[string]func(testing.TB) string {
	tb.Helper()
	files := map[string]func(testing.TB) string{
		"generated": func(tb testing.TB) string { tb.Helper(); return File(tb, Lines) },
	}
	path, err := Real()
	if err != nil {
		tb.Fatal(err)
	}
	if path != "" {
		files["real"] = func(testing.TB) string { return path }
	}
	return files
}

// File writes a made-up order file of so many lines for the time of the test, and returns its
// path. The seed is that of [verify.Seed].
func File(tb testing.TB, lines int) string {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(Generate(verify.Seed(tb), lines))
	path := filepath.Join(tb.TempDir(), "orders.csv.gz")
	if err := errors.Join(err, w.Close(), os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Real returns the absolute path of the order file that SIDING_ORDERS names, "" if it names none.
func Real() (string, error) {
	named := os.Getenv("SIDING_ORDERS")
	if named == "" {
		return "", nil
	}
	path, err := filepath.Abs(named)
	if err == nil {
		_, err = os.Stat(path) //nolint:gosec // whoever runs the tests names the file
	}
	if err != nil {
		return "", fmt.Errorf("SIDING_ORDERS: want an order file: %w", err)
	}
	return path, nil
}

// Rows returns the records of an order file, CSV or CSV.gz with the columns of [Header], without
// the header. This reader shares no code with the project's own, so that tests can compare the two.
func Rows(tb testing.TB, path string) [][]string {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var in io.Reader = bytes.NewReader(text)
	if bytes.HasPrefix(text, []byte("\x1f\x8b")) {
		if in, err = gzip.NewReader(in); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
	}
	r := csv.NewReader(in)
	r.FieldsPerRecord = len(Header)
	rows, err := r.ReadAll()
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return rows[1:]
}
