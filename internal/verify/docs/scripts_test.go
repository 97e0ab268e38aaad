package docs_test

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestScriptHeads wants each Lua script to begin with a comment that says what it does.
func TestScriptHeads(t *testing.T) {
	t.Parallel()
	sentence := regexp.MustCompile(`^[A-Z].*\.`)
	scripts := named(t, func(name string) bool { return path.Ext(name) == ".lua" && !strings.Contains(name, "testdata/") })
	if len(scripts) < 40 {
		t.Errorf("want 40 scripts or more, have %d", len(scripts))
	}
	for _, name := range scripts {
		var head []string
		for line := range strings.Lines(read(t, name)) {
			text, ok := strings.CutPrefix(line, "--")
			if !ok {
				break
			}
			head = append(head, strings.TrimSpace(text))
		}
		if !sentence.MatchString(strings.TrimSpace(strings.Join(head, " "))) {
			t.Errorf("%s: want a comment at the beginning that says what the script does", name)
		}
	}
}
