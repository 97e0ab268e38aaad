package proc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/proc"
)

// verdict is a testing.TB that notes how it was ended.
type verdict struct {
	testing.TB
	ended, message string
}

func (*verdict) Helper() {}

func (v *verdict) Fatal(args ...any) { v.end("fatal", args) }
func (v *verdict) Skip(args ...any)  { v.end("skip", args) }

func (v *verdict) end(how string, args []any) {
	v.ended, v.message = how, fmt.Sprint(args...)
	runtime.Goexit()
}

// find calls Find in a goroutine of its own, as it may end it.
func find(tb testing.TB, names ...string) (path string, v *verdict) {
	tb.Helper()
	v = &verdict{TB: tb}
	done := make(chan struct{})
	go func() {
		defer close(done)
		path = proc.Find(v, "a-package", names...)
	}()
	<-done
	return path, v
}

func TestFindMissing(t *testing.T) {
	for _, tc := range []struct{ ci, want string }{
		{ci: "", want: "skip"},
		{ci: "true", want: "fatal"},
	} {
		t.Run("CI="+tc.ci, func(t *testing.T) {
			t.Setenv("CI", tc.ci)
			_, v := find(t, "no-such-program", "/no/such/*/program")
			if v.ended != tc.want {
				t.Errorf("want the test ended by %s, have %q", tc.want, v.ended)
			}
			if want := "apt-get install a-package"; !strings.Contains(v.message, want) {
				t.Errorf("want a message with %q, have %q", want, v.message)
			}
		})
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, version := range []string{"14", "15"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "server"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, v := find(t, "no-such-program", filepath.Join(dir, "*", "server"))
	if want := filepath.Join(dir, "15", "server"); path != want {
		t.Errorf("want %q, have %q (ended by %q)", want, path, v.ended)
	}
	if path, v = find(t, "go"); !strings.HasSuffix(path, "/go") {
		t.Errorf("want the path of go, have %q (ended by %q)", path, v.ended)
	}
}
