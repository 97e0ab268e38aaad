//go:build unix

package browsertest

import (
	"os/exec"
	"syscall"
)

// inGroup has cmd run in a process group, which kill ends. It is called before cmd
// starts, and kill after that.
func inGroup(cmd *exec.Cmd) (kill func() error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
