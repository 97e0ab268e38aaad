package lock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// TestLockCasesAreTested keeps docs/evidence/lock-cases.md true. All fifty cases are there, each has a case of its number
// in the suite or names a test, every test that the page names exists, and the page has every case of the suite.
func TestLockCasesAreTested(t *testing.T) {
	t.Parallel()
	page := readFile(t, "../docs/evidence/lock-cases.md")
	tests := map[string]string{ // sources by the name of their package in the page
		"":           sources(t, "*_test.go"),
		"lease":      sources(t, "../internal/lease/*_test.go"),
		"interop":    sources(t, "../e2e/interop/*_test.go"),
		"sqlfence":   sources(t, "sqlfence/*_test.go"),
		"redisfence": sources(t, "redisfence/*_test.go"),
		"redlock":    sources(t, "redlock/*_test.go"),
		"etcdlock":   sources(t, "etcdlock/*_test.go"),
		"queue":      sources(t, "../queue/*_test.go"),
	}
	suite := make(map[string]bool)
	for _, m := range regexp.MustCompile(`\{"(\d\d) `).FindAllStringSubmatch(readFile(t, "locktest/cases.go"), -1) {
		suite[m[1]] = false
	}

	rows := regexp.MustCompile(`(?m)^(\d+)\. .*$`).FindAllStringSubmatch(page, -1)
	expect.Need(t, len(rows) == 50, "want 50 cases, have %d", len(rows))
	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Errorf("want case %d, have %s", i+1, row[1])
		}
		n := fmt.Sprintf("%02d", i+1)
		_, checked := suite[n]
		if checked {
			suite[n] = true
		}
		for _, m := range regexp.MustCompile("`(?:(\\w+)\\.)?(Test\\w+)`").FindAllStringSubmatch(row[0], -1) {
			if checked = true; !strings.Contains(tests[m[1]], "\nfunc "+m[2]+"(") {
				t.Errorf("case %d: no test %s", i+1, m[0])
			}
		}
		for _, m := range regexp.MustCompile(`suite (\d\d)`).FindAllStringSubmatch(row[0], -1) {
			if _, checked = suite[m[1]]; !checked {
				t.Errorf("case %d: no case %s in the suite", i+1, m[1])
			}
		}
		expect.That(t, checked, "case %d: want a test", i+1)
	}
	for n, named := range suite {
		expect.That(t, named, "want case %s of the suite in the page", n)
	}
}

func sources(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	expect.Need(t, err == nil && files != nil, "want files like %s, have none, %v", pattern, err)
	var all strings.Builder
	for _, file := range files {
		all.WriteString(readFile(t, file))
	}
	return all.String()
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text := expect.Value(os.ReadFile(name))(t)
	return string(text)
}
