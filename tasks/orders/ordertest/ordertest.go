// Package ordertest provides the order files that tests run on: made-up ones in
// the format of the public Online Retail data set, and a real one where there is
// one.
package ordertest

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sidingq/siding/internal/verify"
)

// Lines is the length of the made-up file of [Files].
const Lines = 20_000

// Files returns the order files that a test must hold on, by name: "generated", of
// [Lines] lines, and "real", if [Real] finds one. Each function returns the path of
// its file. It is to be called in the subtest that reads the file: the generated one
// is made by that call, with the seed of the subtest. Files fails the test if
// SIDING_ORDERS names a file that is not there.
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

// File writes a made-up order file of so many lines for the time of the test and
// returns its path. The seed is that of [verify.Seed].
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

// Real returns the absolute path of the order file that SIDING_ORDERS names. If
// it is not set, Real returns the public extract in ../shared/data beside the
// checkout, or "" if that is not there. The error is about SIDING_ORDERS.
func Real() (string, error) {
	if named := os.Getenv("SIDING_ORDERS"); named != "" {
		path, err := filepath.Abs(named)
		if err == nil {
			_, err = os.Stat(path) //nolint:gosec // whoever runs the tests names the file
		}
		if err != nil {
			return "", fmt.Errorf("SIDING_ORDERS: want an order file: %w", err)
		}
		return path, nil
	}
	// The checkout is a folder with a go.mod above the working directory.
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "..", "shared", "data", "online_retail_extract.csv.gz")
		if exists(filepath.Join(dir, "go.mod")) && exists(path) {
			return path, nil
		}
	}
	return "", err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Rows returns the records of an order file without the header. It takes CSV and
// CSV.gz with the columns of [Header] and shares no code with the project's own
// reader, so that tests can compare the two.
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
