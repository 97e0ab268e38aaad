// Package browsertest shows tests what a person sees of a web page. It opens the page in headless
// Chromium, which runs the scripts, and uses it. Without Chromium a test ends as proc.Need says.
//
// The browser reaches 127.0.0.1 and nothing else: a page that needs the internet shows here
// what it shows without.
package browsertest

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/poll"
	"github.com/sidingq/siding/internal/testenv/proc"
)

const (
	// patience bounds the wait for a text.
	patience = 90 * time.Second
	// oneLook bounds one run of the browser, which takes about a second.
	oneLook = 45 * time.Second
	// pageTime is the time that a page gets to fetch and to draw, by the browser's virtual clock.
	// That clock runs fast while the page has nothing to do.
	pageTime = 3 * time.Second
)

// Text opens url again and again until the page shows want, and returns all of its text. Tags
// count as spaces, and runs of space as one. If want does not appear, the test fails with what
// the page showed last.
func Text(tb testing.TB, url, want string) (have string) {
	tb.Helper()
	program := proc.Find(tb, "chromium", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	err := poll.Until(ctx, func() error {
		dom, err := dump(ctx, program, url)
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

// dump returns the elements of a page.
func dump(ctx context.Context, program, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, oneLook)
	defer cancel()
	profile, err := os.MkdirTemp("", "browsertest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(profile) }() // the last of its processes may still write there
	cmd := command(ctx, program, profile, fmt.Sprintf("--virtual-time-budget=%d", pageTime.Milliseconds()), "--dump-dom", url)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// text returns what a page shows, given its elements.
func text(dom string) string {
	hidden := regexp.MustCompile(`(?s)<script.*?</script>|<style.*?</style>|<!--.*?-->|<[^>]*>`)
	return strings.Join(strings.Fields(html.UnescapeString(hidden.ReplaceAllString(dom, " "))), " ")
}
