package proc

import "syscall"

// dieWithParent has the kernel send the child a signal when the thread ends that started it.
func dieWithParent(by syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: by}
}
