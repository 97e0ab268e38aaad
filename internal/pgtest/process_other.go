//go:build !linux

package pgtest

import "syscall"

// dieWithParent asks for nothing: only Linux ends a child with its parent.
// Elsewhere a test process that is killed leaves its server behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
