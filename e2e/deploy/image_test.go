package deploy_test

import (
	"bytes"
	"debug/elf"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
)

// programs are those of the image.
var programs = []string{"enqueue", "lockctl", "worker"}

// stages returns the two stages of the Dockerfile: the build, and the image.
func stages(t *testing.T) (build, image instructions.Stage) {
	t.Helper()
	file := expect.Value(parser.Parse(bytes.NewReader(read(t, "Dockerfile"))))(t)
	for _, w := range file.Warnings {
		t.Errorf("Dockerfile: %s", w.Short)
	}
	all, args, err := instructions.Parse(file.AST, linter.New(&linter.Config{Warn: func(rule, _, _, text string, _ []parser.Range) {
		t.Errorf("Dockerfile: %s: %s", rule, text)
	}}))
	expect.OK(t, err)
	expect.Need(t, len(all) == 2 && len(args) == 0, "want two stages without arguments, have %d and %v", len(all), args)
	return all[0], all[1]
}

// commands returns the instructions of one sort, in order.
func commands[C instructions.Command](stage instructions.Stage) (some []C) {
	for _, c := range stage.Commands {
		if c, ok := c.(C); ok {
			some = append(some, c)
		}
	}
	return some
}

// healthCheck returns the command that asks whether a container is healthy.
func healthCheck(t *testing.T) []string {
	t.Helper()
	_, image := stages(t)
	checks := commands[*instructions.HealthCheckCommand](image)
	expect.Need(t, len(checks) == 1 && checks[0].Health.Test[0] == "CMD", "want one health check without a shell, which the image lacks, have %v", checks)
	return checks[0].Health.Test[1:]
}

// The image is built by the release of Go of go.mod, and its programs run as a user without a name or rights.
func TestImage(t *testing.T) {
	t.Parallel()
	build, image := stages(t)
	release := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(read(t, "go.mod")))[1]
	if want := "golang:" + release + "-bookworm"; build.BaseName != want {
		t.Errorf("want a build on %s, as of go.mod, have %s", want, build.BaseName)
	}
	users := commands[*instructions.UserCommand](image)
	expect.Need(t, len(users) == 1, "want one user, have %v", users)
	if id, err := strconv.Atoi(strings.Split(users[0].User, ":")[0]); err != nil || id == 0 {
		t.Errorf("want the number of a user other than root, have %s", users[0].User)
	}
}

// The commands of the Dockerfile make programs that need nothing of the system, and that know their commit.
func TestImageBuild(t *testing.T) {
	verify.Long(t)
	t.Parallel()
	build, image := stages(t)
	dir := t.TempDir()
	source := filepath.Join(dir, workdir(build))
	commit := clone(t, source)
	for _, c := range commands[*instructions.RunCommand](build) {
		expect.Need(t, c.PrependShell && len(c.CmdLine) == 1 && len(c.FlagsUsed) <= 0, "want a plain command for the shell, have %v", c)
		run(t, source, outside(), "sh", "-c", c.CmdLine[0])
	}
	for _, c := range commands[*instructions.CopyCommand](image) {
		for _, made := range c.SourcePaths {
			expect.That(t, c.From == build.Name, "want files of the build alone, have %v", c)
			if _, err := os.Stat(filepath.Join(dir, made)); strings.HasPrefix(made, "/siding/") && err != nil {
				t.Error(err)
			}
		}
	}
	bin := filepath.Join(dir, "siding", "bin")
	made, err := os.ReadDir(bin)
	expect.Need(t, err == nil && len(made) == len(programs), "want %q, have %v, error %v", programs, made, err)
	for i, file := range made {
		program := filepath.Join(bin, file.Name())
		if file.Name() != programs[i] {
			t.Errorf("want %s, have %s", programs[i], file.Name())
		}
		if have := run(t, dir, outside(), program, "--version"); !strings.HasPrefix(have, file.Name()+" unreleased (commit "+commit+", Go ") {
			t.Errorf("want the commit %s without changes, have %s", commit, have)
		}
		wantStatic(t, program)
	}
	check := healthCheck(t)
	wantHealth(t, filepath.Join(bin, check[0]), check[1:])
}

// wantStatic wants a program that needs no interpreter and no libraries.
func wantStatic(t *testing.T, program string) {
	t.Helper()
	file := expect.Value(elf.Open(program))(t)
	defer func() { _ = file.Close() }()
	libraries, err := file.ImportedLibraries()
	expect.That(t, err == nil && len(libraries) <= 0, "%s: want no libraries, have %q, error %v", program, libraries, err)
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("%s: want no interpreter", program)
	}
}

// clone copies the files that a build gets into a git repository of their own, and returns its commit.
func clone(t *testing.T, target string) (commit string) {
	t.Helper()
	ignored := ignored(t)
	for _, name := range files(t) {
		if skip, err := ignored.MatchesOrParentMatches(name); err != nil {
			t.Fatal(err)
		} else if skip {
			continue
		}
		info := expect.Value(os.Stat(filepath.Join(root, name)))(t)
		to := filepath.Join(target, name)
		expect.OK(t, os.MkdirAll(filepath.Dir(to), 0o700))
		expect.OK(t, os.WriteFile(to, read(t, name), info.Mode().Perm()))
	}
	env := outside("GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	run(t, target, env, "git", "init", "--quiet", "--initial-branch=main")
	run(t, target, env, "git", "add", "--all")
	run(t, target, env, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "--message=all")
	return strings.TrimSpace(run(t, target, env, "git", "rev-parse", "HEAD"))
}

// files returns the names of the repository's files, without those of git.
func files(t *testing.T) (names []string) {
	t.Helper()
	expect.OK(t, fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == ".git":
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	}))
	return names
}

// ignored matches what .dockerignore keeps from a build.
func ignored(t *testing.T) *patternmatcher.PatternMatcher {
	t.Helper()
	patterns := expect.Value(ignorefile.ReadAll(bytes.NewReader(read(t, ".dockerignore"))))(t)
	matcher := expect.Value(patternmatcher.New(patterns))(t)
	return matcher
}

// A build gets all that git keeps, or the go command would call the tree changed. What git ignores stays
// behind.
func TestDockerignore(t *testing.T) {
	t.Parallel()
	matcher := ignored(t)
	for name, want := range map[string]bool{
		".git/HEAD": false, "go.mod": false, "cmd/enqueue/main.go": false, "cmd/lockctl/main.go": false,
		"enqueue": true, "lockctl": true, "queue/queue.test": true, "ledger.db": true, "cmd/worker/ledger.db-wal": true, "coverage.out": true,
	} {
		if have, err := matcher.MatchesOrParentMatches(name); err != nil || have != want {
			t.Errorf("%s: want ignored %t, have %t, error %v", name, want, have, err)
		}
	}
	var git, docker []string
	for line := range strings.Lines(string(read(t, ".gitignore"))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			git = append(git, strings.TrimPrefix(line, "/"))
		}
	}
	patterns := expect.Value(ignorefile.ReadAll(bytes.NewReader(read(t, ".dockerignore"))))(t)
	for _, p := range patterns {
		docker = append(docker, path.Base(p))
	}
	expect.That(t, slices.Equal(git, docker), ".dockerignore: want what git ignores, %q, have %q", git, docker)
}
