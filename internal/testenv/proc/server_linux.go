package proc

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent has the kernel send the child a signal when the thread that started
// it ends; launch sees to it that this thread lives as long as the child.
func dieWithParent(by syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: by}
}

// stopped reports whether SIGSTOP has taken effect: the signal is delivered
// some time after it was sent, and until then the process still answers.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state follows the program's name, which stands in parentheses.
	after := stat[bytes.LastIndexByte(stat, ')')+1:]
	return bytes.HasPrefix(after, []byte(" T"))
}
