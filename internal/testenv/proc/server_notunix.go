//go:build !unix

package proc

import (
	"errors"
	"os/exec"
)

func (*child) pause() error  { return errors.ErrUnsupported }
func (*child) resume() error { return errors.ErrUnsupported }

func runAs(*exec.Cmd, string) error { return errors.ErrUnsupported }
