package docs_test

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// ofRedis are the errors of Redis among the symptoms.
var ofRedis = []string{"MISCONF", "OOM command not allowed", "CLUSTERDOWN", "MOVED", "READONLY", "NOPERM", "NOAUTH", "WRONGPASS"}

// TestSymptoms wants the messages and the checks of the page on troubleshooting to be in the code, as people
// search for them.
func TestSymptoms(t *testing.T) {
	t.Parallel()
	const page = "docs/guides/troubleshooting.md"
	var code, doctor strings.Builder
	for _, name := range named(t, func(name string) bool {
		return path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "bench/")
	}) {
		code.WriteString(read(t, name))
		if path.Dir(name) == "cmd/lockctl" {
			doctor.WriteString(read(t, name))
		}
	}
	known := code.String() + strings.Join(ofRedis, "\n")
	rows := regexp.MustCompile(`(?m)^\| (.*?) \| (.*?) \| (.*) \|$`).FindAllStringSubmatch(read(t, page), -1)
	if len(rows) < 30 {
		t.Errorf("%s: want 30 rows or more, have %d", page, len(rows))
	}
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if strings.HasPrefix(m[1], "lockctl") {
				continue // e2e looks at it
			}
			for _, part := range regexp.MustCompile(`\.\.\.|RESOURCE`).Split(m[1], -1) {
				if !strings.Contains(known, strings.Trim(part, " ,")) {
					t.Errorf("%s: no code says %q", page, m[1])
				}
			}
		}
		for _, m := range regexp.MustCompile(`\*([a-z ]+)\*`).FindAllStringSubmatch(strings.ReplaceAll(row[0], "**", ""), -1) {
			if m[1] != "doctor" && !strings.Contains(doctor.String(), `"`+m[1]+`"`) {
				t.Errorf("%s: doctor has no check %q", page, m[1])
			}
		}
	}
}
