package proc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

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
	expect.That(t, len(theirs) == each, "want %d addresses of the other process, have %d", each, len(theirs))
	for i, addr := range ours {
		expect.That(t, !slices.Contains(theirs, addr) && !slices.Contains(ours[:i], addr), "want each address once, have %s again", addr)
	}
	_ = input.Close()
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}
