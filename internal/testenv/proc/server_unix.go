//go:build unix

package proc

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

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
