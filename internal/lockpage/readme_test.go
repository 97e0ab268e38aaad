package lockpage_test

import (
	"bytes"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/sidingq/siding/internal/lockpage"
	"github.com/sidingq/siding/internal/testenv/browsertest"
	"github.com/sidingq/siding/internal/testenv/expect"
)

var update = flag.Bool("update", false, "write the pictures of the README")

// The two pictures of the README show the pages as they are. With -update this test takes them
// anew. Without, it wants the pages to open, and pictures of that size to be there.
func TestReadmePictures(t *testing.T) {
	t.Parallel()
	s := shop()
	address := serve(t, lockpage.Config{Source: s, Dashboard: "/dashboard", Revoke: mayRevoke})
	for _, one := range []struct {
		file, path, text string
		window           browsertest.Window
	}{
		{"locks.png", "/locks", "order:536365", browsertest.Window{Width: 1280, Height: 860}},
		{"locks-dark.png", "/locks/resource?name=order:536365", "Who waits", browsertest.Window{Width: 1280, Height: 860, Dark: true}},
	} {
		t.Run(one.file, func(t *testing.T) {
			t.Parallel()
			page := browsertest.Open(t, address+one.path, one.window)
			page.AwaitText(one.text)
			renew(page)
			page.Await(`[...document.fonts].some(f => f.family.includes("Roboto") && f.status === "loaded")`)
			shot := page.Screenshot(false)
			file := filepath.Join("..", "..", "docs", "pictures", one.file)
			if *update {
				expect.OK(t, os.WriteFile(file, shot, 0o600))
			}
			text := expect.Value(os.ReadFile(file))(t)
			have, err := png.DecodeConfig(bytes.NewReader(text))
			expect.That(t, err == nil && have.Width == one.window.Width && have.Height == one.window.Height, "%s: want a picture of %d x %d, have %+v, %v; run this test with -update", file, one.window.Width, one.window.Height, have, err)
		})
	}
}
