// Package browsertest looks at web pages as a person would: with a browser
// that runs their scripts. It drives headless Chromium; where there is none the
// test is skipped, or fails if the environment variable CI is set.
//
// The browser reaches 127.0.0.1 and nothing else: a page that needs the
// internet shows here what it shows without.
package browsertest

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/proc"
)

const (
	// patience bounds the wait for a text to appear; only a test that fails
	// anyway waits for its end.
	patience = 90 * time.Second
	// oneLook bounds one run of the browser, which takes about a second.
	oneLook = 45 * time.Second
	// pageTime is how much of its own time a page gets to fetch and to draw. It
	// is virtual: it passes as fast as the page has nothing to do.
	pageTime = 3 * time.Second
)

// Text opens url again and again until the page shows want, and returns all of
// its text. Tags count as spaces, and runs of space as one. The test fails with
// what the page showed last when want does not appear.
func Text(tb testing.TB, url, want string) string {
	tb.Helper()
	b := find(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	var have string
	err := poll.Until(ctx, func() error {
		dom, err := b.run(ctx, "--dump-dom", url)
		if err != nil {
			return err
		}
		if have = text(string(dom)); !strings.Contains(have, want) {
			return fmt.Errorf("have %q", have)
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("%s: want the text %q: %v", url, want, err)
	}
	return have
}

// Screenshot writes a picture of the page at url, 1280 by 900 points, to file
// as PNG.
func Screenshot(tb testing.TB, url, file string) {
	tb.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		tb.Fatal(err)
	}
	// The browser reports success also where it wrote nothing.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		tb.Fatal(err)
	}
	if _, err := find(tb).run(tb.Context(), "--screenshot="+path, "--window-size=1280,900", url); err != nil {
		tb.Fatalf("screenshot of %s: %v", url, err)
	}
	picture, err := os.ReadFile(path)
	if err == nil {
		_, err = png.Decode(bytes.NewReader(picture))
	}
	if err != nil {
		tb.Fatalf("screenshot of %s: %v", url, err)
	}
}

// A browser is how to start one.
type browser struct{ program, home string }

func find(tb testing.TB) browser {
	tb.Helper()
	return browser{
		program: proc.Find(tb, "chromium", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
		home:    tb.TempDir(),
	}
}

// run starts the browser for one task and returns what it printed.
func (b browser) run(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, oneLook)
	defer cancel()
	profile, err := os.MkdirTemp(b.home, "profile-")
	if err != nil {
		return nil, err
	}
	//nolint:gosec // the program and its arguments are the tests' own
	cmd := exec.CommandContext(ctx, b.program, append([]string{
		"--headless",
		"--no-sandbox", // which root, as in most containers, has to do without
		"--disable-gpu",
		"--disable-dev-shm-usage", // containers give it 64 MB
		"--disable-quic",
		"--disable-background-networking",
		"--disable-component-update",
		"--disable-sync",
		"--disable-breakpad",
		"--no-first-run",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		"--user-data-dir=" + profile,
		fmt.Sprintf("--virtual-time-budget=%d", pageTime.Milliseconds()),
	}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+profile)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// The browser is a family of processes, which must end together, or the last
	// of them still write into a folder that is being removed.
	killAll := inGroup(cmd)
	cmd.Cancel = killAll
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	if cmd.Process != nil {
		_ = killAll() // usually nobody is left
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", b.program, err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// text returns what a page shows, given its elements.
func text(dom string) string {
	hidden := regexp.MustCompile(`(?s)<script.*?</script>|<style.*?</style>|<!--.*?-->|<[^>]*>`)
	return strings.Join(strings.Fields(html.UnescapeString(hidden.ReplaceAllString(dom, " "))), " ")
}
