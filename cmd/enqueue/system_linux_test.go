package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// terminal returns both ends of a pseudo terminal.
func terminal(t *testing.T) (screen, program *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	expect.Need(t, err == nil, "no pseudo terminals here: %v", err)
	t.Cleanup(func() { _ = screen.Close() })
	fd := int(screen.Fd())
	expect.OK(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	expect.OK(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	expect.OK(t, err)
	return screen, program
}

func TestProgress(t *testing.T) {
	t.Parallel()
	path, _ := orderFile(t, 5000)
	for name, c := range map[string]struct {
		args    []string
		stdin   string
		want    string // matches what the terminal shows; empty for nothing at all
		columns uint16
	}{
		"file":   {[]string{"orders", path}, "", `\d+ of 15001 lines, \d+ %`, 0},
		"stdin":  {[]string{"stream"}, `{"kind":"order:audit","payload":{"order":"1"}}`, `lines`, 0},
		"quiet":  {[]string{"orders", path, "--quiet"}, "", "", 0},
		"wide":   {[]string{"orders", path}, "", `\d+ of 15001 lines, \d+ %`, 80},
		"narrow": {[]string{"orders", path}, "", "", 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			screen, program := terminal(t)
			expect.OK(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: c.columns}))
			shown := make(chan []byte)
			go func() {
				all, _ := io.ReadAll(screen) // ends with an error when the program's end is closed
				shown <- all
			}()
			var out bytes.Buffer
			a := &app{stdin: strings.NewReader(c.stdin), stdout: &out, stderr: program}
			status := a.run(t.Context(), append(c.args, "--dry-run"))
			expect.OK(t, program.Close())
			have := string(<-shown)
			expect.That(t, status == cli.StatusOK && regexp.MustCompile(c.want).MatchString(have) && (c.want == "") == (have == ""), "want status 0 and %q shown, have %d and %q", c.want, status, have)
		})
	}
}

// The signals end the program behind the batch in hand.
func TestSignal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	slow := locktest.NewProxy(t, server.Addr)
	slow.Delay(20 * time.Millisecond)
	path, want := orderFile(t, 500)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		q := "signal-" + sig.String()
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), os.Args[0], "orders", path, "--redis", slow.Addr, "--queue", q)
		cmd.Env = []string{asCommand + "=1"}
		cmd.Stderr = &errs
		expect.OK(t, cmd.Start())
		expect.Eventually(t, "some tasks", func() bool { return pending(t, client, q) > 100 })
		expect.OK(t, cmd.Process.Signal(sig))
		err := cmd.Wait()
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok || ended.ExitCode() != cli.StatusFault || !strings.HasPrefix(errs.String(), "enqueue: interrupted; run the same command again to go on behind line ") {
			t.Errorf("%v: want status 1 and where to go on, have %v and %q", sig, err, errs.String())
		}
		if have := enqueue(t, "", "orders", path, "--redis", server.Addr, "--queue", q); have.status != cli.StatusOK {
			t.Errorf("again: want status 0, have %+v", have)
		}
		wantExactly(t, client, q, want)
	}
}

// A second signal ends the program at once, also if nobody reads what it says.
func TestSecondSignalUnread(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "task", "order:audit", "--dry-run", "--payload", "-") //nolint:noctx // killed at cleanup
	cmd.Env, cmd.Stderr = []string{asCommand + "=1"}, proc.FullPipe(t)
	stdin := expect.Value(cmd.StdinPipe())(t)
	p := proc.Launch(t, cmd)
	expect.Value(stdin.Write(make([]byte, 1<<17)))(t) // returns once the program reads
	expect.Eventually(t, "the end", func() bool {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
		select {
		case <-p.Ended:
			return true
		default:
			return false
		}
	})
	expect.Equal(t, "exit status", p.Wait(t, time.Second), cli.StatusFault)
}

// A host that answers nothing, not even to a connection, holds up a call for
// some seconds and not for the product of all retries.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	// A listener whose queue of connections is full drops all that come.
	fd := expect.Value(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	expect.OK(t, errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)))
	name := expect.Value(unix.Getsockname(fd))(t)
	bound, ok := name.(*unix.SockaddrInet4)
	expect.Need(t, ok, "want an IPv4 address, have %T", name)
	addr := fmt.Sprintf("127.0.0.1:%d", bound.Port)
	dialer := net.Dialer{Timeout: 100 * time.Millisecond}
	for range 3 {
		if conn, err := dialer.DialContext(t.Context(), "tcp", addr); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	settings := config.Default()
	settings.Redis.Addrs = []string{addr}
	settings.Redis.DialTimeout, settings.Redis.Timeout = time.Second, time.Second
	opts, err := cli.ClientOptions(settings, "enqueue")
	expect.OK(t, err)
	client := queue.Redis(opts)
	t.Cleanup(func() { _ = client.Close() })
	start := time.Now()
	_, err = newClient(t, client).Enqueue(t.Context(), tasks.AuditOrder{Order: "1"}, nil)
	if took := time.Since(start); err == nil || took > 10*time.Second {
		t.Errorf("want an error after about two seconds, have %v after %v", err, took)
	}
}
