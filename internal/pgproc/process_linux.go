package pgproc

import "syscall"

// dieWithParent has the kernel end the child, in order, when the thread that
// started it ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
}
