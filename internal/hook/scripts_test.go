package hook

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// The scripts are all those of the release that go.mod asks for, and that release is the known one.
func TestKnownScriptsAreThoseOfAsynq(t *testing.T) {
	t.Parallel()
	found, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", asynqPath).Output()
	if err != nil {
		t.Fatal(err)
	}
	version, dir, _ := strings.Cut(strings.TrimSpace(string(found)), " ")
	if version != AsynqVersion {
		t.Errorf("want %s, have %s", version, AsynqVersion)
	}
	want := map[string]string{}
	text := regexp.MustCompile("(?s)var (\\w+)Cmd = redis\\.NewScript\\(`(.*?)`\\)")
	for _, file := range []string{"rdb.go", "inspect.go"} {
		code, err := os.ReadFile(filepath.Join(dir, "internal", "rdb", file))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(code, []byte("redis.NewScript(")); n == 0 || n != len(text.FindAll(code, -1)) {
			t.Errorf("%s: want %d scripts, have %d", file, n, len(text.FindAll(code, -1)))
		}
		for _, s := range text.FindAllSubmatch(code, -1) {
			want[string(s[1])] = redis.NewScript(string(s[2])).Hash()
		}
	}
	have := map[string]string{}
	for line := range strings.Lines(asynqScripts) {
		words := strings.Fields(line)
		have[words[0]] = words[1]
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}

func TestOtherAsynq(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		build *debug.BuildInfo
		want  string
	}{
		"nothing is known": {nil, ""},
		"a test":           {&debug.BuildInfo{}, ""},
		"the known one":    {buildWith(&debug.Module{Path: asynqPath, Version: AsynqVersion}), ""},
		"a later one":      {buildWith(&debug.Module{Path: asynqPath, Version: "v0.27.0"}), "v0.27.0"},
		"one in between":   {buildWith(&debug.Module{Path: asynqPath, Version: "v0.26.1-0.20261101000000-0123456789ab"}), "v0.26.1-0.20261101000000-0123456789ab"},
		"a workspace":      {buildWith(&debug.Module{Path: asynqPath, Version: "(devel)"}), ""},
		"a fork": {buildWith(&debug.Module{
			Path: asynqPath, Version: "v0.27.0",
			Replace: &debug.Module{Path: "example.com/asynq", Version: "v1.0.0"},
		}), ""},
		"without asynq": {buildWith(), ""},
	} {
		if have := otherAsynq(tt.build); have != tt.want {
			t.Errorf("%s: want %q, have %q", name, tt.want, have)
		}
		var log bytes.Buffer
		h := newHook(slog.New(slog.NewTextHandler(&log, nil)), func() {}, tt.build)
		if lines := strings.Count(log.String(), "have="+tt.want+"\n"); h.Mismatched() != (tt.want != "") || (lines == 1) != (tt.want != "") {
			t.Errorf("%s: want a mismatch: %t, have %t, log:\n%s", name, tt.want != "", h.Mismatched(), &log)
		}
	}
}

func buildWith(deps ...*debug.Module) *debug.BuildInfo {
	return &debug.BuildInfo{Deps: append(deps, &debug.Module{Path: "github.com/redis/go-redis/v9", Version: "v9.0.0"})}
}
