package config_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
)

var (
	aVariable = regexp.MustCompile(`\bSIDING_[A-Z_]+`)
	aKey      = regexp.MustCompile(`(?:^|[^\w./:@-])((?:redis|shutdown|lock|recovery|ledger|http|log)\.[a-z_]+)\b`)
)

// wrongNames returns the names in a text that are those of no setting. A setting of the environment alone goes by its
// variable: nobody can give its key a value.
func wrongNames(text string) (wrong []string) {
	known := map[string]bool{"SIDING_CONFIG": true, "SIDING_ORDERS": true} // which Load knows as no settings
	for _, s := range config.Settings() {
		known[s.Env] = true
		known[s.Key] = s.Flag != ""
	}
	names := aVariable.FindAllString(text, -1)
	for _, match := range aKey.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	for _, name := range names {
		if !known[name] {
			wrong = append(wrong, name)
		}
	}
	return wrong
}

// The texts of the programs name no setting that is not there.
func TestTextsNameSettings(t *testing.T) {
	t.Parallel()
	found := 0
	for _, dir := range []string{"cmd", "inspect", "internal/cli", "internal/config", "internal/dashboard", "internal/lockpage", "internal/member", "tasks", "worker"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
					said, _ := strconv.Unquote(text.Value)
					found += len(aVariable.FindAllString(said, -1))
					if strings.Contains(said, " ") { // else it is the key itself
						for _, name := range wrongNames(said) {
							t.Errorf("%s: no setting is called %s: %s", set.Position(text.Pos()), name, said)
						}
					}
				}
				return true
			})
			return nil
		})
		expect.OK(t, err)
	}
	expect.That(t, found >= 10, "want more variables in texts, have %d", found)
}

// Each field that an error of package lock may name is a setting.
func TestFieldsOfLocks(t *testing.T) {
	t.Parallel()
	for field := range reflect.TypeFor[lock.Config]().Fields() {
		key := "lock."
		for i, r := range field.Name {
			if i > 0 && unicode.IsUpper(r) && unicode.IsLower(rune(field.Name[i-1])) {
				key += "_"
			}
			key += string(unicode.ToLower(r))
		}
		if wrong := wrongNames(key); wrong != nil {
			t.Errorf("%s: want a setting %s", field.Name, key)
		}
	}
}
