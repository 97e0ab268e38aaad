// Package browsertest shows tests what a person sees of a web page. It opens the page in headless
// Chromium, which runs the scripts, and uses it. Without Chromium a test ends as proc.Need says.
//
// The browser reaches 127.0.0.1 and nothing else: a page that needs the internet shows here
// what it shows without.
package browsertest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

const (
	// patience bounds the wait for a text.
	patience = 90 * time.Second
	// oneLook bounds one question to the browser.
	oneLook = 45 * time.Second
)

// A Window is what a person looks at a page with.
type Window struct {
	Width, Height int
	Dark          bool // the person prefers dark pages
	NoScript      bool // the browser runs no JavaScript
}

// A Page is a window of a browser, in which a test clicks and types.
type Page struct {
	tb      testing.TB
	pipe    *pipe
	session string

	mu       sync.Mutex
	requests []string
	errors   []string
}

// Open opens url in a browser of its own, which ends with the test.
func Open(tb testing.TB, url string, window Window) *Page {
	tb.Helper()
	p := &Page{tb: tb}
	p.start(proc.Find(tb, "chromium", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))
	var target struct {
		ID string `json:"targetId"`
	}
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		Session string `json:"sessionId"`
	}
	p.call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	p.session = attached.Session
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		p.call(domain+".enable", nil, nil)
	}
	scheme := "light"
	if window.Dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{
		map[string]any{"name": "prefers-color-scheme", "value": scheme},
		map[string]any{"name": "prefers-reduced-motion", "value": "reduce"}, // a picture shows no half of a motion
	}}, nil)
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": window.Width, "height": window.Height, "deviceScaleFactor": 1, "mobile": window.Width < 600,
	}, nil)
	p.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": window.NoScript}, nil)
	p.Go(url)
	return p
}

// start starts the browser, and ends it with the test.
func (p *Page) start(program string) {
	tb := p.tb
	tb.Helper()
	profile, err := os.MkdirTemp("", "browsertest-")
	if err != nil {
		tb.Fatal(err)
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	cmd := command(ctx, program, profile, "--remote-debugging-pipe", "--hide-scrollbars", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4 there
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Start()
	_, _ = theirIn.Close(), theirOut.Close() // the child has its own
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	p.pipe = newPipe(ourIn, ourOut, p.event)
	tb.Cleanup(func() {
		early := false
		select {
		case <-p.pipe.ended:
			early = true
		default:
		}
		_ = ourOut.Close() // which ends the browser
		stop := time.AfterFunc(10*time.Second, cancel)
		<-p.pipe.ended
		stop.Stop()
		cancel()
		_ = cmd.Wait()
		_ = ourIn.Close()
		_ = os.RemoveAll(profile) // the last of its processes may still write there
		if early {
			tb.Errorf("%s ended before the test: %s", program, stderr.Bytes())
		}
	})
}

// event notes what the page asks for, and what goes wrong in it.
func (p *Page) event(_, method string, params json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "Network.requestWillBeSent":
		var sent struct {
			Request struct {
				URL string `json:"url"`
			} `json:"request"`
		}
		if json.Unmarshal(params, &sent) == nil && !strings.HasPrefix(sent.Request.URL, "data:") {
			p.requests = append(p.requests, sent.Request.URL)
		}
	case "Runtime.exceptionThrown":
		p.errors = append(p.errors, string(params))
	case "Log.entryAdded":
		var added struct {
			Entry struct {
				Level string `json:"level"`
				Text  string `json:"text"`
				URL   string `json:"url"`
			} `json:"entry"`
		}
		if json.Unmarshal(params, &added) == nil && added.Entry.Level == "error" {
			p.errors = append(p.errors, added.Entry.Text+" "+added.Entry.URL)
		}
	}
}

// Requests returns the addresses that the page has asked for so far.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Errors returns what has gone wrong in the page so far: exceptions, what its policy has refused,
// and requests that failed.
func (p *Page) Errors() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.errors)
}

// Go opens another address in the same window.
func (p *Page) Go(url string) {
	p.tb.Helper()
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	p.Await(`location.href !== "about:blank" && document.readyState === "complete"`)
}

// Eval stores the value of an expression in JavaScript in the variable that value points to. It
// waits for a promise. A value of nil drops it.
func (p *Page) Eval(expression string, value any) {
	p.tb.Helper()
	if err := p.eval(expression, value); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *Page) eval(expression string, value any) error {
	var reply struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := p.try("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &reply)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", expression, err)
	case reply.Exception != nil:
		return fmt.Errorf("%s: %s %s", expression, reply.Exception.Text, reply.Exception.Exception.Description)
	case value == nil:
		return nil
	}
	return json.Unmarshal(reply.Result.Value, value)
}

// Await waits until an expression is true.
func (p *Page) Await(expression string) {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.tb.Context()), patience)
	defer cancel()
	err := expect.Until(ctx, func() error {
		var ok bool
		if err := p.eval("!!("+expression+")", &ok); err != nil || ok {
			return err
		}
		return fmt.Errorf("%s is false", expression)
	})
	if err != nil {
		p.tb.Fatalf("%v; the page shows %q", err, p.Text())
	}
}

// AwaitText waits until the page shows a text.
func (p *Page) AwaitText(want string) {
	p.tb.Helper()
	text, _ := json.Marshal(want) // a string always has a JSON text
	p.Await(`document.body && document.body.innerText.replace(/\s+/g, " ").includes(` + string(text) + `)`)
}

// Text returns what the page shows, with runs of space as one.
func (p *Page) Text() (have string) {
	_ = p.eval(`document.body ? document.body.innerText.replace(/\s+/g, " ") : ""`, &have)
	return have
}

// Click clicks in the middle of the first element that selector finds, once there is one.
func (p *Page) Click(selector string) {
	p.tb.Helper()
	quoted, _ := json.Marshal(selector)
	p.Await(`document.querySelector(` + string(quoted) + `)`)
	var at struct{ X, Y float64 }
	p.Eval(`(e => { e.scrollIntoView({block: "center"}); const r = e.getClientRects()[0]; return {X: r.x + r.width / 2, Y: r.y + r.height / 2} })(document.querySelector(`+string(quoted)+`))`, &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// Type types a text into the element that has the focus.
func (p *Page) Type(text string) {
	p.tb.Helper()
	p.call("Input.insertText", map[string]any{"text": text}, nil)
}

// keys are the codes of keys that are not letters.
var keys = map[string]int{"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, "Tab": 9}

// Press presses a key, by its name in JavaScript, such as "j", "?" or "Enter".
func (p *Page) Press(key string) {
	p.tb.Helper()
	down := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": keys[key]}
	switch {
	case key == "Enter":
		down["text"] = "\r"
	case keys[key] == 0:
		down["text"] = key
	}
	p.call("Input.dispatchKeyEvent", down, nil)
	p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": keys[key]}, nil)
}

// Screenshot returns a picture of the window, as a PNG file. With all it is a picture of the
// whole page.
func (p *Page) Screenshot(all bool) []byte {
	p.tb.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	p.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": all}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.tb.Fatal(err)
	}
	return png
}

// Picture writes a screenshot to the folder that SIDING_TEST_SCREENSHOTS names, if it names one.
func (p *Page) Picture(name string, all bool) {
	p.tb.Helper()
	if dir := os.Getenv("SIDING_TEST_SCREENSHOTS"); dir != "" {
		expect.OK(p.tb, os.WriteFile(filepath.Join(dir, name+".png"), p.Screenshot(all), 0o600)) //nolint:gosec // whoever runs the tests names the folder
	}
}

func (p *Page) call(method string, params map[string]any, result any) {
	p.tb.Helper()
	if err := p.try(method, params, result); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *Page) try(method string, params map[string]any, result any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.tb.Context()), oneLook)
	defer cancel()
	return p.pipe.call(ctx, p.session, method, params, result)
}

// command returns a run of the browser that reaches 127.0.0.1 alone.
func command(ctx context.Context, program, profile string, args ...string) *exec.Cmd {
	//nolint:gosec // the program and its arguments are the tests' own
	cmd := exec.CommandContext(ctx, program, append([]string{
		"--headless",
		"--no-sandbox", // root has none, as in most containers
		"--disable-gpu",
		"--disable-dev-shm-usage", // containers give it 64 MB
		"--disable-quic",
		"--disable-background-networking",
		"--disable-component-update",
		"--disable-sync",
		"--disable-breakpad",
		"--no-first-run",
		"--allow-pre-commit-input", // else a click on a page that is loaded and not yet painted is dropped
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		"--user-data-dir=" + profile,
	}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+profile)
	cmd.WaitDelay = 5 * time.Second // the other processes of the browser end with the first
	return cmd
}
