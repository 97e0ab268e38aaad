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
	doctor := readAll(t, func(name string) bool { return isCode(name) && path.Dir(name) == "cmd/lockctl" })
	known := readAll(t, func(name string) bool { return isCode(name) && !strings.HasPrefix(name, "bench/") }) + strings.Join(ofRedis, "\n")
	rows := regexp.MustCompile(`(?m)^\| (.*?) \| (.*?) \| (.*) \|$`).FindAllStringSubmatch(read(t, page), -1)
	if len(rows) < 30 {
		t.Errorf("%s: want 30 rows or more, have %d", page, len(rows))
	}
	for _, row := range rows {
		for message := range listed(row[1], "`([^`]+)`") {
			if strings.HasPrefix(message, "lockctl") {
				continue // e2e looks at it
			}
			for _, part := range regexp.MustCompile(`\.\.\.|RESOURCE`).Split(message, -1) {
				if !strings.Contains(known, strings.Trim(part, " ,")) {
					t.Errorf("%s: no code says %q", page, message)
				}
			}
		}
		for check := range listed(strings.ReplaceAll(row[0], "**", ""), `\*([a-z ]+)\*`) {
			if check != "doctor" && !strings.Contains(doctor, `"`+check+`"`) {
				t.Errorf("%s: doctor has no check %q", page, check)
			}
		}
	}
}
