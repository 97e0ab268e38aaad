//go:build !unix

package browsertest

import "os/exec"

// inGroup knows no groups: kill ends cmd alone.
func inGroup(cmd *exec.Cmd) (kill func() error) {
	return func() error { return cmd.Process.Kill() }
}
