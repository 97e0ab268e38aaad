//go:build !linux

package pgproc

import "syscall"

// dieWithParent asks for nothing: only Linux ends a child with its parent.
// Elsewhere a program that is killed leaves its server behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
