package docs_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestWorkflows wants a time limit for each job on GitHub, Go's release of go.mod, and only scripts
// and make targets that are there.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	release := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	workflows := named(t, func(name string) bool { return path.Dir(name) == ".github/workflows" })
	if len(workflows) == 0 {
		t.Error("want workflows, have none")
	}
	var runs []string
	for _, name := range workflows {
		var workflow struct {
			Jobs map[string]struct {
				Container string
				Timeout   int `yaml:"timeout-minutes"`
				Steps     []struct{ Uses, Run string }
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, name)), &workflow); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for id, job := range workflow.Jobs {
			if job.Timeout == 0 {
				t.Errorf("%s: %s: want timeout-minutes", name, id)
			}
			if want := "golang:" + release + "-"; !strings.HasPrefix(job.Container, want) {
				t.Errorf("%s: %s: want an image that begins with %s, have %q", name, id, want, job.Container)
			}
			for _, step := range job.Steps {
				if step.Run != "" {
					runs = append(runs, step.Run)
					wantCommand(t, name, step.Run)
				}
			}
		}
	}
	for _, want := range []string{".ci/run", "make verify MINUTES=10"} {
		if !slices.Contains(runs, want) {
			t.Errorf("want a step that runs %s, have %q", want, runs)
		}
	}
}

// wantCommand wants the script, or the make target, with which a command begins.
func wantCommand(t *testing.T, workflow, command string) {
	t.Helper()
	words := strings.Fields(command)
	if words[0] == "make" {
		wantTarget(t, workflow, words[1])
		return
	}
	if info, err := os.Stat(filepath.Join(root, words[0])); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("%s: %s: want a script that can be run, have error %v", workflow, command, err)
	}
}

// TestDependabot wants each module looked after.
func TestDependabot(t *testing.T) {
	t.Parallel()
	var settings struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
		}
	}
	must(t, yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &settings))
	var want, have []string
	for _, name := range named(t, func(name string) bool { return path.Base(name) == "go.mod" }) {
		want = append(want, path.Join("/", path.Dir(name)))
	}
	for _, u := range settings.Updates {
		if u.Ecosystem == "gomod" {
			have = append(have, u.Directories...)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("want the modules %q, have %q", want, have)
	}
}
