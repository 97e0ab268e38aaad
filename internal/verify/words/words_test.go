package words_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sidingq/siding/internal/verify/words"
)

// TestWords finds no refused word in any file, nor in a file's name.
func TestWords(t *testing.T) {
	t.Parallel()
	finder := words.NewFinder()
	for name, text := range files(t) {
		for _, found := range finder.In(name + "\n" + text) {
			t.Errorf("%s:%d: not %q: write %s", name, found.Line-1, found.Word, found.Instead) // line 0 is the name
		}
	}
}

// TestPlantedWords shows that each word is found, and none in good text.
func TestPlantedWords(t *testing.T) {
	t.Parallel()
	finder := words.NewFinder()
	for _, w := range words.Words {
		found := false
		for _, f := range finder.In(w.Example) {
			found = found || f.Instead == w.Instead
		}
		if !found {
			t.Errorf("%q: want it refused, for %s", w.Example, w.Instead)
		}
		if again := finder.In(w.Instead); again != nil {
			t.Errorf("%q is what to write instead, but is refused: %v", w.Instead, again)
		}
	}
	for _, good := range []string{
		"the safety margin", "an error in line 12", "Elapsed", "string, bearing, gracefully", "inline",
		"waits in the wait queue until the hand-off timeout", "promotion of a replica",
	} {
		if found := finder.In(good); found != nil {
			t.Errorf("%q: want nothing refused, have %v", good, found)
		}
	}
}

// files returns the text of all files that are checked, by their names.
func files(t *testing.T) map[string]string {
	t.Helper()
	root, err := os.OpenRoot(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if base := entry.Name(); base == ".git" || base == "node_modules" || name == "internal/verify/words" {
				return fs.SkipDir
			}
			return nil
		}
		switch filepath.Ext(name) {
		case ".go", ".lua", ".md", ".mjs", ".yaml", ".yml":
			text, err := fs.ReadFile(root.FS(), name)
			texts[name] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 100 {
		t.Fatalf("want the files of the repository, have %d", len(texts))
	}
	return texts
}
