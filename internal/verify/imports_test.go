package verify_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

const module = "github.com/sidingq/siding/"

// A layer is packages that import only those of the layers before theirs, and the libraries of these and their own.
type layer struct {
	packages, libraries string
}

// layers are the direction in which Siding's packages import each other. They keep other libraries out of those that users
// import.
var layers = []layer{
	{packages: "internal/sleep internal/store"},
	{"internal/redisreply internal/limits", "github.com/redis/go-redis"},
	{"internal/lockredis internal/lease", "github.com/google/uuid"},
	{packages: "lock"},
	{packages: "lock/locktest lock/redlock lock/sqlfence lock/redisfence"},
	{"internal/taskredis", "google.golang.org/protobuf"},
	{"internal/engine", "github.com/hibiken/asynq"},
	{packages: "queue/asynqhandler"},
	{packages: "queue"},
	{packages: "queue/queuetest inspect"},
}

// Packages that no line names are programs, and what programs alone use: they may import all libraries. These are libraries
// in modules of their own.
var ownModules = map[string]string{"lock/etcdlock": "go.etcd.io/etcd google.golang.org/grpc", "queue/queueotel": "go.opentelemetry.io/otel"}

func TestDirectionOfImports(t *testing.T) {
	t.Parallel()
	all := imports(t)
	var below, libraries []string
	for _, l := range layers {
		libraries = append(libraries, strings.Fields(l.libraries)...)
		packages := strings.Fields(l.packages)
		for _, p := range packages {
			expect.That(t, len(all[p]) != 0, "want a package %s, have none", p)
			for _, name := range all[p] {
				own, isOwn := strings.CutPrefix(name, module)
				expect.That(t, !isOwn || slices.Contains(below, own) || strings.HasPrefix(own, "internal/testenv/"), "%s imports %s, want only packages of the layers below", p, own)
			}
			wantLibraries(t, p, all[p], libraries)
		}
		below = append(below, packages...)
	}
	for p, own := range ownModules {
		wantLibraries(t, p, all[p], append(strings.Fields(own), libraries...))
	}
}

// wantLibraries checks that a package imports nothing but Siding, the standard library, and these.
func wantLibraries(t *testing.T, p string, imports, libraries []string) {
	t.Helper()
	for _, name := range imports {
		first, _, _ := strings.Cut(name, "/")
		isIn := func(library string) bool { return name == library || strings.HasPrefix(name, library+"/") }
		expect.That(t, !strings.Contains(first, ".") || strings.HasPrefix(name, module) || slices.ContainsFunc(libraries, isIn), "%s imports %s, want of other libraries only %s", p, name, libraries)
	}
}

// Programs as users write them import nothing that users cannot.
func TestExamplesImportNothingInternal(t *testing.T) {
	t.Parallel()
	for p, names := range imports(t) {
		for _, name := range names {
			expect.That(t, !strings.HasPrefix(p, "examples/") || !strings.HasPrefix(name, module+"internal/"), "%s imports %s", p, name)
		}
	}
}

// imports returns what each package imports, without its tests.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	all := make(map[string][]string)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		names := make(map[string]bool)
		for _, spec := range file.Imports {
			pkg, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			names[pkg] = true
		}
		all[path.Dir(name)] = slices.AppendSeq(all[path.Dir(name)], maps.Keys(names))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
