//go:build !linux

package testproc

import "syscall"

// dieWithParent is empty: only Linux ends a child with its parent. Elsewhere a
// test process that is killed leaves its servers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

// stopped takes the signal's effect for granted where it cannot be seen.
func stopped(int) bool { return true }
