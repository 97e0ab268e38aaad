package docs_test

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestCompatibility wants the table of versions to say what the repository has: the requirements of the
// modules, the systems of make vet, and the tests that are named.
func TestCompatibility(t *testing.T) {
	t.Parallel()
	const page = "docs/reference/compatibility.md"
	text := read(t, page)
	version := func(file, module string) string {
		m := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (v?\d\S*)`).FindStringSubmatch(read(t, file))
		if m == nil {
			t.Fatalf("%s: want a version of %s", file, module)
		}
		return m[1]
	}
	release := regexp.MustCompile(`^\d+\.\d+`).FindString(version("go.mod", "go"))
	least := regexp.MustCompile(`leastMajor, leastMinor = (\d+), (\d+)`).FindStringSubmatch(read(t, "queue/check.go"))
	for _, want := range []string{
		"| Go | " + release + " | tested",
		"| asynq | " + version("go.mod", "github.com/hibiken/asynq") + " | tested",
		"| go-redis | " + version("go.mod", "github.com/redis/go-redis/v9") + " |",
		"| OpenTelemetry, for `queueotel` | " + version("queue/queueotel/go.mod", "go.opentelemetry.io/otel") + " |",
		"| etcd's client, for `etcdlock` | " + version("lock/etcdlock/go.mod", "go.etcd.io/etcd/client/v3") + " |",
		"miniredis " + version("go.mod", "github.com/alicebob/miniredis/v2"),
		"modernc.org/sqlite " + version("go.mod", "modernc.org/sqlite"),
		fmt.Sprintf("| Redis | %s.%s: one server, Sentinel, Cluster | tested", least[1], least[2]),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: want %q", page, want)
		}
	}
	vetted := map[string]string{"darwin": "macOS", "windows": "Windows"}
	for _, m := range regexp.MustCompile(`GOOS=(\w+)`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		if name := vetted[m[1]]; name == "" || !regexp.MustCompile(`(?m)^\|.*`+name+`.*compiled`).MatchString(text) {
			t.Errorf("%s: make vet compiles for %s: want a line that says so", page, m[1])
		}
		delete(vetted, m[1])
	}
	for system := range vetted {
		t.Errorf("%s: make vet does not compile for %s", page, system)
	}
	// The servers are those of the release of Debian in which CI runs.
	for _, name := range named(t, func(name string) bool { return path.Dir(name) == ".github/workflows" }) {
		if !strings.Contains(read(t, name), "-bookworm") || !strings.Contains(text, "Debian 12") {
			t.Errorf("%s: want Debian 12, which is bookworm, here and in %s", name, page)
		}
	}
	if !strings.Contains(read(t, ".ci/newer"), "debian trixie") || !strings.Contains(text, "Debian 13") {
		t.Errorf("%s: want Debian 13, which is trixie, here and in .ci/newer", page)
	}
	tests := readAll(t, isTest)
	for name := range listed(text, "`(Test\\w+)`") {
		if !strings.Contains(tests, "\nfunc "+name+"(") {
			t.Errorf("%s: there is no %s", page, name)
		}
	}
}
