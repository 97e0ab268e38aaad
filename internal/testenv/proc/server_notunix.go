//go:build !unix

package proc

import (
	"errors"
	"os/exec"
)

func (*Server) pause() error  { return errors.ErrUnsupported }
func (*Server) resume() error { return errors.ErrUnsupported }

func runAs(*exec.Cmd, string) error { return errors.ErrUnsupported }
