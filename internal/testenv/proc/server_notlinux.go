//go:build !linux

package proc

import "syscall"

// dieWithParent asks for nothing: only Linux ends a child with its parent.
func dieWithParent(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
