// Package imports_test keeps the linter's table of imports complete. Each package has a rule, and
// each rule says no more than its package needs.
package imports_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const module = "github.com/sidingq/siding/"

// A rule is one of depguard in .golangci.yml.
type rule struct {
	ListMode string   `yaml:"list-mode"`
	Files    []string `yaml:"files"`
	Allow    []string `yaml:"allow"`
}

// TestEachRoomHasARule wants a strict rule for each package of the product and its programs.
func TestEachRoomHasARule(t *testing.T) {
	t.Parallel()
	all := rules(t)
	delete(all, "testing") // the one rule that is no room's
	for dir, imports := range rooms(t) {
		r, ok := all[dir]
		delete(all, dir)
		files := []string{"${config-path}/" + dir + "/*.go", "!$test"}
		if !ok || r.ListMode != "strict" || !slices.Equal(r.Files, files) {
			t.Errorf("%s: want a strict rule of its own in .golangci.yml, for the files %q", dir, files)
		}
		for _, allowed := range r.Allow {
			pkg, exact := strings.CutSuffix(allowed, "$")
			if own := strings.HasPrefix(pkg, module); own != exact {
				t.Errorf("%s: %s: want $ after packages of Siding, and only there", dir, allowed)
			}
			used := func(name string) bool { return name == pkg || !exact && strings.HasPrefix(name, pkg+"/") }
			if allowed != "$gostd" && !slices.ContainsFunc(imports, used) {
				t.Errorf("%s: the rule allows %s, which is not imported", dir, pkg)
			}
		}
	}
	for dir := range all {
		t.Errorf(".golangci.yml has a rule for %s, which is no package", dir)
	}
}

// rules returns the rules by their names.
func rules(t *testing.T) map[string]rule {
	t.Helper()
	var file struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]rule `yaml:"rules"`
				} `yaml:"depguard"`
			} `yaml:"settings"`
		} `yaml:"linters"`
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", ".golangci.yml"))
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Linters.Settings.Depguard.Rules
}

// rooms returns what each package imports, without its tests. Programs that only test or
// measure are no rooms, nor are examples within a package.
func rooms(t *testing.T) map[string][]string {
	t.Helper()
	root := os.DirFS(filepath.Join("..", "..", ".."))
	all := make(map[string][]string)
	for _, top := range []string{"cmd", "examples", "worker", "tasks", "inspect", "queue", "lock", "internal"} {
		err := fs.WalkDir(root, top, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case name == "internal/testenv", name == "internal/verify", entry.Name() == "example":
				return fs.SkipDir
			case path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
				return nil
			}
			text, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
			if err != nil {
				return err
			}
			dir := path.Dir(name)
			imports := all[dir]
			for _, spec := range file.Imports {
				pkg, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}
				imports = append(imports, pkg)
			}
			all[dir] = imports // also if there are none
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
