//go:build unix

package proc

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine was started. All its processes read the same clock, which nobody can set, so that what
// they write down can be compared. Node has it as process.hrtime.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("proc: no monotonic clock: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

func (s *Server) pause() error  { return s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *Server) resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// runAs has an account run cmd, and gives it the folder that cmd works in.
func runAs(cmd *exec.Cmd, account string) error {
	u, err := user.Lookup(account)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return fmt.Errorf("user %s: uid: %w", account, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return fmt.Errorf("user %s: gid: %w", account, err)
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(cmd.Dir, int(uid), int(gid))
}
