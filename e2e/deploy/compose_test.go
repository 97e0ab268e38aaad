package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/queue"
)

// passwords returns those that the compose file asks for.
func passwords() types.Mapping {
	return types.Mapping{"SIDING_HTTP_PASSWORD": "sesame", "GRAFANA_PASSWORD": "sesame"}
}

// compose reads the compose file as docker compose does.
func compose(t *testing.T, environment types.Mapping) (*types.Project, error) {
	t.Helper()
	file := expect.Value(filepath.Abs(filepath.Join(root, "deploy", "compose.yaml")))(t)
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{ //nolint:wrapcheck // the tests want its text
		WorkingDir: filepath.Dir(file), ConfigFiles: []types.ConfigFile{{Filename: file}}, Environment: environment,
	})
}

// project returns the compose file with all passwords.
func project(t *testing.T) *types.Project {
	t.Helper()
	p := expect.Value(compose(t, passwords()))(t)
	return p
}

// workers returns the services that are workers, with the environment of each.
func workers(t *testing.T, p *types.Project) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for name, s := range p.Services {
		if s.Image == "siding" {
			for variable, value := range s.Environment {
				all[name] = append(all[name], variable+"="+*value)
			}
		}
	}
	return all
}

// The compose file follows the schema. It starts with no password that nobody has chosen, and offers other
// machines nothing.
func TestCompose(t *testing.T) {
	t.Parallel()
	for name := range passwords() {
		some := passwords()
		delete(some, name)
		if _, err := compose(t, some); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %s asked for, have error %v", name, err)
		}
	}
	p := project(t)
	for name, s := range p.Services {
		for _, port := range s.Ports {
			expect.That(t, port.HostIP == "127.0.0.1", "%s: want a port for this machine alone, have %+v", name, port)
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s: want a file that is there, to be read alone, have %+v, error %v", name, v, err)
			}
		}
	}
	fleet := workers(t, p)
	expect.That(t, len(fleet) == 2, "want two workers, have %q", fleet)
	for name, environ := range fleet {
		s, settings := p.Services[name], load(t, environ)
		if stop := s.StopGracePeriod; stop == nil || settings.HardDeadline >= timeOf(stop) {
			t.Errorf("%s: stop_grace_period: want more than shutdown.hard_deadline, %v, have %v", name, settings.HardDeadline, stop)
		}
		if want := "0.0.0.0:8080"; settings.HTTP.Address != want {
			t.Errorf("%s: want probes for Prometheus at %s, have %s", name, want, settings.HTTP.Address)
		}
		expect.That(t, len(settings.Redis.Addrs) == 1 && p.Services[strings.TrimSuffix(settings.Redis.Addrs[0], ":6379")].Name != "", "%s: want a Redis that is a service, have %q", name, settings.Redis.Addrs)
	}
}

// The Redis of the compose file keeps its tasks and locks. Redis itself reads the command line.
func TestComposeRedis(t *testing.T) {
	t.Parallel()
	command := project(t).Services["redis"].Command
	expect.Need(t, command[0] == "redis-server", "want redis-server, have %q", command)
	found := expect.Value(queue.CheckRedis(t.Context(), redistest.Start(t, command[1:]...).Client(t)))(t)
	for _, f := range found {
		t.Errorf("want a Redis that loses nothing, have %+v", f)
	}
}

// Prometheus accepts its file, and scrapes all workers.
func TestComposePrometheus(t *testing.T) {
	t.Parallel()
	p, dir := project(t), t.TempDir()
	for _, v := range p.Services["prometheus"].Volumes {
		if name, ok := strings.CutPrefix(v.Target, "/etc/prometheus/"); ok {
			text, err := os.ReadFile(v.Source)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
			}
			expect.OK(t, err)
		}
	}
	out := run(t, dir, outside(), proc.Find(t, "prometheus", "promtool"), "check", "config", "prometheus.yml")
	expect.That(t, strings.Contains(out, "rules found"), "want the alerts read, have %s", out)
	var file struct {
		Scrapes []struct {
			Static []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	expect.OK(t, yaml.Unmarshal(read(t, "deploy", "prometheus", "prometheus.yml"), &file))
	var want []string
	for name := range workers(t, p) {
		want = append(want, name+":8080")
	}
	slices.Sort(want)
	if have := file.Scrapes[0].Static[0].Targets; !slices.Equal(have, want) {
		t.Errorf("want the targets %q, have %q", want, have)
	}
}
