package deploy_test

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// workdir returns the folder in which the programs of a stage run.
func workdir(stage instructions.Stage) string {
	return commands[*instructions.WorkdirCommand](stage)[0].Path
}

func timeOf(d *types.Duration) time.Duration { return time.Duration(*d) }

// A worker with the settings of the compose file is healthy while it runs, by the health check of the image.
func TestHealthCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run(t, root, outside("GOFLAGS=-buildvcs=false"), "go", "build", "-o", dir+"/", "./cmd/worker")
	check := healthCheck(t)
	wantHealth(t, filepath.Join(dir, check[0]), check[1:])
}

// wantHealth runs a worker with the settings of the compose file, on a Redis and a port of this machine.
func wantHealth(t *testing.T, worker string, check []string) {
	t.Helper()
	server, dir := redistest.Start(t), t.TempDir()
	address := expect.Value(proc.FreeAddr(t.Context()))(t)
	_, port, err := net.SplitHostPort(address)
	expect.OK(t, err)
	here := strings.NewReplacer("redis:6379", server.Addr, ":8080", ":"+port)
	env := outside()
	for _, setting := range workers(t, project(t))["worker-1"] {
		env = append(env, here.Replace(setting))
	}
	status := func() int {
		cmd := exec.CommandContext(t.Context(), worker, check...)
		cmd.Dir, cmd.Env = dir, env
		_ = cmd.Run() // the status tells
		return cmd.ProcessState.ExitCode()
	}
	if have := status(); have != 1 {
		t.Errorf("before the start: want status 1, have %d", have)
	}
	cmd := exec.Command(worker) //nolint:noctx // killed at cleanup
	cmd.Dir, cmd.Env = dir, env
	p := proc.Launch(t, cmd)
	expect.Eventually(t, "a healthy worker", func() bool { return status() == 0 })
	wantProbes(t, "http://127.0.0.1:"+port)
	expect.OK(t, p.Cmd.Process.Kill())
	<-p.Ended
	if have := status(); have != 1 {
		t.Errorf("after a kill: want status 1, have %d", have)
	}
}
