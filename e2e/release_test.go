package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/internal/verify"
)

const (
	releasePath    = "github.com/sidingq/siding"
	releaseVersion = "v0.1.0"
	// notReleased is what pages say before the first release. Somebody replaces it then.
	notReleased = "No version is released yet"
)

// A release is a git repository that has a copy of this one. The scripts tag that copy.
type release struct {
	dir string
	env []string
}

// newRelease copies the files that are wanted.
func newRelease(t *testing.T, want func(name string) bool) *release {
	t.Helper()
	r := &release{dir: t.TempDir()}
	r.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GO") || strings.HasPrefix(v, "GIT_") }),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com",
		// What the path of the modules stands for is this repository.
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+r.dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+releasePath)
	source := filepath.Join("..")
	expect.OK(t, fs.WalkDir(os.DirFS(source), ".", func(name string, entry fs.DirEntry, err error) error {
		to := filepath.Join(r.dir, name)
		switch {
		case err != nil:
			return err
		case entry.Name() == ".git" && entry.IsDir():
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(to, 0o700)
		case entry.Name() == ".git" || !entry.Type().IsRegular() || !want(name):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, info.Mode().Perm())
	}))
	r.git(t, "init", "--quiet", "--initial-branch=main")
	r.commit(t, "all")
	return r
}

// run runs a program in a folder, and returns what it said.
func (r *release) run(t *testing.T, dir string, env []string, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(slices.Clone(r.env), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err //nolint:wrapcheck // the tests want the status
}

// must is run for a program that must succeed.
func (r *release) must(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	out, err := r.run(t, dir, env, program, args...)
	expect.Need(t, err == nil, "%s %q: %v\n%s", program, args, err, out)
	return out
}

func (r *release) git(t *testing.T, args ...string) string {
	t.Helper()
	return r.must(t, r.dir, nil, "git", args...)
}

func (r *release) commit(t *testing.T, message string) {
	t.Helper()
	r.git(t, "add", "--all")
	r.git(t, "commit", "--quiet", "--message="+message)
}

// edit changes a file, which must have the text.
func (r *release) edit(t *testing.T, name, text, by string) {
	t.Helper()
	file := filepath.Join(r.dir, name)
	old := expect.Value(os.ReadFile(file))(t)
	expect.Need(t, bytes.Contains(old, []byte(text)), "%s: want %q in it", name, text)
	expect.OK(t, os.WriteFile(file, bytes.ReplaceAll(old, []byte(text), []byte(by)), 0o600))
}

// step runs a make target for the version.
func (r *release) step(t *testing.T, target string) (string, error) {
	t.Helper()
	return r.run(t, r.dir, nil, "make", "--no-print-directory", target, "VERSION="+releaseVersion)
}

// modules returns the folders of the modules that others import, as the Makefile lists them.
func (r *release) modules(t *testing.T) []string {
	t.Helper()
	text := read(t, filepath.Join(r.dir, "Makefile"))
	return strings.Fields(regexp.MustCompile(`(?m)^RELEASED = (.*)$`).FindStringSubmatch(text)[1])
}

// A release of a commit that is not ready makes no tag, and says what is missing.
func TestReleaseRefuses(t *testing.T) {
	t.Parallel()
	r := newRelease(t, func(name string) bool { // what the steps read
		return slices.Contains([]string{"go.mod", "Makefile", "release"}, path.Base(name)) || path.Ext(name) == ".md"
	})
	refused := func(target, want string) {
		t.Helper()
		if out, err := r.step(t, target); err == nil || !strings.Contains(out, want) {
			t.Errorf("make %s: want it refused with %q, have error %v: %s", target, want, err, out)
		}
		if have := r.git(t, "tag"); have != "" {
			t.Errorf("want no tags, have %q", have)
		}
	}
	refused("release", `CHANGELOG.md: want changes under "## v0.1.0 - DATE", have none`)
	for version, want := range map[string]string{"0.1.0": `have "0.1.0"`, "v2.0.0": `have "v2.0.0"`, "v01.0": `have "v01.0"`, "": `have ""`} {
		if out, err := r.run(t, r.dir, nil, ".ci/release", "tag", version, "."); err == nil || !strings.Contains(out, want) {
			t.Errorf("%q: want it refused, have error %v: %s", version, err, out)
		}
	}
	r.edit(t, "README.md", "Siding", "siding")
	refused("prepare", "want a clean tree")
	r.git(t, "checkout", "--quiet", ".")

	if out, err := r.step(t, "prepare"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	refused("release", "want a clean tree")
	r.commit(t, "prepare")
	refused("prepare", "want changes under \"## Unreleased\"")
	refused("release", notReleased)
	r.announce(t)

	good := strings.TrimSpace(r.git(t, "rev-parse", "HEAD"))
	for _, spoil := range []struct{ file, text, by, want string }{
		{"lock/etcdlock/go.mod", releasePath + " " + releaseVersion, releasePath + " v0.0.9", "lock/etcdlock/go.mod: want " + releasePath + " v0.1.0, have v0.0.9"},
		{"bench/go.mod", releasePath + " " + releaseVersion, releasePath + " v0.0.0", "bench/go.mod: want " + releasePath + " v0.1.0, have v0.0.0"},
		{"queue/queueotel/go.mod", "=> ../..", "=> ../..\n\nreplace github.com/google/uuid => github.com/google/uuid v1.5.0", "queue/queueotel/go.mod: want no replace but by a folder of Siding"},
		{"go.mod", "go 1.26.0", "go 1.26.0\n\nreplace github.com/google/uuid => ../uuid", "go.mod: want no replace but by a folder of Siding"},
		{"go.mod", "go 1.26.0", "go 1.26.0\n\nreplace " + releasePath + "/lock/etcdlock => ./lock/etcdlock", "go.mod: want no replace, as go install refuses it"},
	} {
		r.edit(t, spoil.file, spoil.text, spoil.by)
		r.commit(t, "spoil "+spoil.file)
		refused("release", spoil.want)
		r.git(t, "reset", "--quiet", "--hard", good)
	}
	if out, err := r.step(t, "release"); err != nil {
		t.Errorf("want the tags made, have %v: %s", err, out)
	}
	if out, err := r.step(t, "release"); err == nil || !strings.Contains(out, "is there already") {
		t.Errorf("want a second release refused, have %v: %s", err, out)
	}
}

// announce replaces what only the first release changes, which a person does.
func (r *release) announce(t *testing.T) {
	t.Helper()
	for name := range strings.Lines(r.git(t, "grep", "-l", notReleased, "--", "*.md", ":!docs/internals/releasing.md")) {
		r.edit(t, strings.TrimSpace(name), notReleased, "The latest version is "+releaseVersion)
	}
	r.commit(t, "release "+releaseVersion)
}

// consumer is a program outside of this repository, which uses all of Siding's modules.
const consumer = `package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/etcdlock"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/queue/queueotel"
	"github.com/sidingq/siding/worker"
)

type greet struct{ Name string }

func (greet) Kind() string       { return "test:greet" }
func (g greet) Resource() string { return "name:" + g.Name }

var (
	_ lock.Store = etcdlock.New(&clientv3.Client{})
	_            = worker.Main
	_ *queueotel.Telemetry
)

func main() {
	ctx, end := context.WithCancel(context.Background())
	options := &redis.UniversalOptions{Addrs: os.Args[1:]}
	client, err := queue.NewClient(queue.Redis(options), queue.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Enqueue(ctx, greet{"Ada"}, nil); err != nil {
		log.Fatal(err)
	}
	server, err := queue.NewServer(queue.RedisOpt(*options), queue.ServerConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	queue.Handle(server, func(ctx context.Context, g greet) error {
		fmt.Printf("%s is locked: %t\n", g.Name, lock.Fence(ctx, g.Resource()) > 0)
		end()
		return nil
	})
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
`

// TestRelease makes a release of all modules, and uses it as others do. The go command makes the modules
// of a proxy from the tags, as proxy.golang.org does. A program outside of the repository then gets them
// from the proxy, and nothing else of this repository.
func TestRelease(t *testing.T) {
	verify.Long(t)
	t.Parallel()
	r := newRelease(t, func(string) bool { return true })
	server := redistest.Start(t)
	if out, err := r.step(t, "prepare"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.announce(t)
	out, err := r.step(t, "release")
	expect.Need(t, err == nil, "%v: %s", err, out)
	var tags, modules []string
	for _, dir := range r.modules(t) {
		tags = append(tags, path.Join(dir, releaseVersion))
		modules = append(modules, path.Join(releasePath, dir)+"@"+releaseVersion)
	}
	if push := "git push --atomic origin " + strings.Join(tags, " "); !strings.Contains(out, push) {
		t.Errorf("want %q, have %s", push, out)
	}

	host := expect.Value(exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY", "GOCACHE").Output())(t)
	have := strings.Split(strings.TrimSpace(string(host)), "\n")
	made, used, empty := t.TempDir(), t.TempDir(), t.TempDir()
	common := []string{"GOFLAGS=-modcacherw", "GONOSUMDB=" + releasePath, "GOCACHE=" + have[2], "CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOWORK=off"}
	r.must(t, empty, append(common, "GOPROXY=direct", "GOMODCACHE="+made), "go", append([]string{"mod", "download"}, modules...)...)
	// Of others' modules this machine may have a copy.
	common = append(common, "GOMODCACHE="+used, fmt.Sprintf("GOPROXY=file://%s/cache/download,file://%s/cache/download,%s", made, have[0], have[1]))

	dir := t.TempDir()
	expect.OK(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(consumer), 0o600))
	r.must(t, dir, common, "go", "mod", "init", "example.com/consumer")
	r.must(t, dir, common, "go", append([]string{"get"}, modules...)...)
	r.must(t, dir, common, "go", "mod", "tidy")
	for line := range strings.Lines(r.must(t, dir, common, "go", "list", "-m", "all")) {
		expect.That(t, !strings.HasPrefix(line, releasePath) || slices.Contains(modules, strings.Replace(strings.TrimSpace(line), " ", "@", 1)), "want the released modules, have %s", line)
	}
	r.must(t, dir, common, "go", "build", "-trimpath", "-o", "consumer", ".")
	if have := r.must(t, dir, common, "./consumer", server.Addr); !strings.Contains(have, "Ada is locked: true\n") {
		t.Errorf("want the task run under its lock, have %s", have)
	}
	for _, program := range []string{"worker", "enqueue", "lockctl"} {
		have := r.must(t, empty, common, "go", "run", "-trimpath", releasePath+"/cmd/"+program+"@"+releaseVersion, "--version")
		if want := program + " " + releaseVersion + " ("; !strings.Contains(have, want) {
			t.Errorf("want %s, have %s", want, have)
		}
	}
}
