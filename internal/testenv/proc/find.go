package proc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Look returns the path of the first of names that this machine has. A name is a program in PATH,
// or a pattern with a slash, of which the last match counts. Debian keeps each version of
// PostgreSQL in a folder of its own. The error names debianPackage, and is an [exec.ErrNotFound].
func Look(debianPackage string, names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		if matches, err := filepath.Glob(name); err == nil && len(matches) > 0 && strings.Contains(name, "/") {
			return slices.Max(matches), nil
		}
	}
	return "", fmt.Errorf("%q: %w; install it (on Debian: apt-get install %s)", names, exec.ErrNotFound, debianPackage)
}

// Find is Look for tests, which end as by [Need].
func Find(tb testing.TB, debianPackage string, names ...string) string {
	tb.Helper()
	path, err := Look(debianPackage, names...)
	Need(tb, err)
	return path
}

// Need ends the test unless err is nil. Need skips the test if a program is missing. With the
// environment variable CI it fails the test instead, or nobody would notice.
func Need(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "":
		tb.Skip(err) //nolint:forbidigo // this is what others call
	default:
		tb.Fatal(err)
	}
}

// reserved has the ports that FreeAddr has returned in this process, each with what keeps it.
var reserved sync.Map

// FreeAddr returns an address of 127.0.0.1 that is free, and that no other call returns. On Linux
// this holds for all processes, until this one ends. Linux gives higher ports (from 32768) to
// outgoing connections and to listeners on port 0. So a server that is down for a moment finds its
// port free. The bus of a Redis Cluster node needs its port plus 10000.
func FreeAddr(ctx context.Context) (string, error) {
	const lowest, count, attempts = 12000, 10000, 100
	var config net.ListenConfig
	for range attempts {
		port := strconv.Itoa(lowest + rand.IntN(count))
		var keeper net.Listener
		if runtime.GOOS == "linux" {
			// Such a name has no file, and the kernel frees it with the process.
			var err error
			if keeper, err = config.Listen(ctx, "unix", "@siding-test-port-"+port); err != nil {
				continue
			}
		}
		if _, before := reserved.LoadOrStore(port, keeper); before {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", port)
		if isFree(ctx, addr) {
			return addr, nil
		}
	}
	return "", errors.Join(fmt.Errorf("no free port among %d from %d on, in %d attempts", count, lowest, attempts), ctx.Err())
}

// isFree reports whether a listener may have an address. A program that this process starts has all
// listeners of the process until the program is loaded. Then the port would be taken for a moment longer.
// So no program starts meanwhile. On other systems than Linux, package net itself needs that lock.
func isFree(ctx context.Context, addr string) bool {
	if runtime.GOOS == "linux" {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	return err == nil && l.Close() == nil
}

// OnFreePorts calls start until it finds its ports free. Nothing keeps other programs
// from the port between [FreeAddr] and the server's bind.
func OnFreePorts(start func() error) (err error) {
	const attempts = 10
	for range attempts {
		if err = start(); err == nil || !strings.Contains(strings.ToLower(err.Error()), "address already in use") {
			break
		}
	}
	return err
}
