package docs_test

import (
	"cmp"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestTrackRecord wants each fault to name the test that guards against it: the name in brackets where there is
// one, as the other is that of the commit.
func TestTrackRecord(t *testing.T) {
	t.Parallel()
	const page = "docs/evidence/track-record.md"
	tests := make(map[string]string) // sources by package
	for _, name := range named(t, isTest) {
		tests[path.Dir(name)] += read(t, name)
	}
	faults := 0
	for _, m := range regexp.MustCompile(`(?m)\| [0-9a-f]{8} (\S+) (\w+)(?: \((\w+)\))? \|$`).FindAllStringSubmatch(read(t, page), -1) {
		name := cmp.Or(m[3], m[2])
		if faults++; !strings.Contains(tests[m[1]], "\nfunc "+name+"(") {
			t.Errorf("%s: %s has no %s", page, m[1], name)
		}
	}
	for _, m := range regexp.MustCompile(`(queue|engine|lock)\.(Test\w+)`).FindAllStringSubmatch(read(t, page), -1) {
		dir := map[string]string{"queue": "queue", "engine": "internal/engine", "lock": "lock"}[m[1]]
		if faults++; !strings.Contains(tests[dir], "\nfunc "+m[2]+"(") {
			t.Errorf("%s: %s has no %s", page, dir, m[2])
		}
	}
	if faults < 40 {
		t.Errorf("%s: want 40 tests or more, have %d", page, faults)
	}
}
