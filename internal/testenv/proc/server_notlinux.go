//go:build !linux

package proc

import "syscall"

// dieWithParent asks for nothing: only Linux ends a child with its parent.
func dieWithParent(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// stopped takes the signal's effect for granted where it cannot be seen.
func stopped(int) bool { return true }
