package proc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
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
		expect.OK(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		expect.OK(t, os.WriteFile(filepath.Join(dir, version, "server"), nil, 0o600))
	}
	path, v := find(t, "no-such-program", filepath.Join(dir, "*", "server"))
	if want := filepath.Join(dir, "15", "server"); path != want {
		t.Errorf("want %q, have %q (ended by %q)", want, path, v.ended)
	}
	if path, v = find(t, "go"); !strings.HasSuffix(path, "/go") {
		t.Errorf("want the path of go, have %q (ended by %q)", path, v.ended)
	}
}

// A process that starts has the listeners of its parent for a moment, until its program is loaded.
// A test that starts one must not keep another test from its port.
func TestFreeAddrBesideNewProcesses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Log("only Linux has the new process wait")
		return
	}
	const calls = 100
	program, err := exec.LookPath("true")
	proc.Need(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var starters sync.WaitGroup
	for range 4 {
		starters.Go(func() {
			for ctx.Err() == nil {
				_ = exec.CommandContext(ctx, program).Run()
			}
		})
	}
	defer starters.Wait()
	defer stop()
	for range calls {
		addr := expect.Value(proc.FreeAddr(t.Context()))(t)
		l := expect.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", addr))(t)
		_ = l.Close()
	}
}

// asOther is the environment variable that makes TestFreeAddr the other process.
const asOther = "SIDING_TEST_FREE_ADDR"

// Two processes get none of the other's addresses. By luck alone they would share some nine of 300.
func TestFreeAddr(t *testing.T) {
	t.Parallel()
	const each = 300
	addresses := func() (all []string) {
		for range each {
			addr := expect.Value(proc.FreeAddr(t.Context()))(t)
			all = append(all, addr)
		}
		return all
	}
	if os.Getenv(asOther) != "" {
		_, _ = fmt.Fprintln(os.Stdout, strings.Join(addresses(), " "))
		_, _ = io.Copy(io.Discard, os.Stdin) // the addresses are kept until the parent closes it
		return
	}
	if runtime.GOOS != "linux" {
		t.Log("only Linux keeps the addresses of one process from another")
		return
	}
	other := exec.Command(os.Args[0], "-test.run=^TestFreeAddr$") //nolint:noctx // ends with its input
	other.Env = append(os.Environ(), asOther+"=1")
	input := expect.Value(other.StdinPipe())(t)
	output := expect.Value(other.StdoutPipe())(t)
	expect.OK(t, other.Start())
	line := expect.Value(bufio.NewReader(output).ReadString('\n'))(t)
	theirs, ours := strings.Fields(line), addresses()
	if len(theirs) != each {
		t.Errorf("want %d addresses of the other process, have %d", each, len(theirs))
	}
	for i, addr := range ours {
		if slices.Contains(theirs, addr) || slices.Contains(ours[:i], addr) {
			t.Errorf("want each address once, have %s again", addr)
		}
	}
	_ = input.Close()
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}
