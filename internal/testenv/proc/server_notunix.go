//go:build !unix

package proc

import (
	"errors"
	"os/exec"
	"time"
)

// Now is the time of the system's clock, which can be set.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }

func (*Server) pause() error  { return errors.ErrUnsupported }
func (*Server) resume() error { return errors.ErrUnsupported }

func runAs(*exec.Cmd, string) error { return errors.ErrUnsupported }
