package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/redistest"
)

// Siding sends no command that is newer than Redis 6.2. Its users may send no others than their rules
// name, which the tests of these rights compare with what is sent. Redis itself says since when it has a
// command.
func TestCommandsOfRedis62(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	checked := 0
	for user, rules := range rightsOf(t) {
		for _, rule := range rules {
			name, ok := strings.CutPrefix(rule, "+")
			if !ok {
				continue
			}
			docs, err := rdb.Do(t.Context(), "COMMAND", "DOCS", name).Result()
			if err != nil {
				t.Fatal(err)
			}
			since := sinceOf(docs, name)
			parts := strings.Split(since, ".")
			if len(parts) != 3 {
				t.Errorf("%s: %s: want the version that brought it, have %q", user, name, since)
				continue
			}
			major, _ := strconv.Atoi(parts[0])
			minor, _ := strconv.Atoi(parts[1])
			if major > 6 || major == 6 && minor > 2 {
				t.Errorf("%s: %s came with Redis %s: want 6.2 or older", user, name, since)
			}
			checked++
		}
	}
	if checked < 100 {
		t.Errorf("want the commands of all users checked, have %d", checked)
	}
}

// sinceOf returns the version in an answer of COMMAND DOCS, of a command or of one within it.
func sinceOf(answer any, name string) string {
	docs, ok := answer.(map[any]any)
	if !ok {
		return ""
	}
	if inner, ok := docs[name].(map[any]any); ok {
		since, _ := inner["since"].(string)
		return since
	}
	return ""
}
