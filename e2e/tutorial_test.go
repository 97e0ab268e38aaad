package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
	"github.com/sidingq/siding/internal/verify"
)

// A reader follows the tutorial in a fresh folder.
type reader struct {
	*testbed
	root      string              // the clone
	dir       string              // the folder of the first terminal
	redis     *redis.Client       // on the Redis that the second terminal has
	embedded  string              // its port
	terminals map[string]*process // what serves in the others
	outputs   map[string]string   // of the commands in the first terminal
}

// A block is a fenced block of the page, under its heading.
type block struct{ step, info, text string }

// blocks returns the blocks of a page that are shell commands or Go.
func blocks(t *testing.T, page string) (all []block) {
	t.Helper()
	step := ""
	for _, m := range regexp.MustCompile("(?ms)^## (\\d)|^```((?:sh|go)[^\n]*)\n(.*?)^```$").FindAllStringSubmatch(read(t, page), -1) {
		if m[1] != "" {
			step = m[1]
			continue
		}
		all = append(all, block{step, m[2], m[3]})
	}
	return all
}

// The test does what the tutorial says, block by block and word for word. It changes only addresses, and
// the number of the process to kill. The worker is killed and its task recovered in make verify alone.
func TestTutorial(t *testing.T) {
	t.Parallel()
	root := expect.Value(filepath.Abs(".."))(t)
	address := expect.Value(proc.FreeAddr(t.Context()))(t)
	checks := map[string]func(*reader, *testing.T){
		`"order":"1001"`:      (*reader).seesItRun,
		"./lockctl why short": (*reader).seesItWait,
	}
	if verify.All() {
		checks["kill -9"], checks["./lockctl why long"] = (*reader).seesItRecovered, (*reader).seesItRunAgain
	}
	r := &reader{testbed: &testbed{}, root: root, dir: t.TempDir(), terminals: make(map[string]*process), outputs: make(map[string]string)}
	r.env = append(environ(), "SIDING_REDIS_ADDRS="+address, "SIDING_HTTP_ADDRESS=127.0.0.1:0")
	r.embedded = address[strings.LastIndexByte(address, ':')+1:]
	r.redis = redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { _ = r.redis.Close() })
	for _, b := range blocks(t, filepath.Join("..", "docs", "tutorial.md")) {
		if b.step == "6" && !verify.All() {
			break
		}
		name, serves := strings.CutPrefix(b.info, "sh terminal ")
		switch {
		case b.info == "go":
			r.writes(t, b.text)
		case serves:
			r.opens(t, name, b.text)
		default:
			for line := range strings.Lines(b.text) {
				r.types(t, strings.TrimSuffix(line, "\n"))
			}
		}
		for text, check := range checks {
			if strings.Contains(b.text, text) {
				check(r, t)
				delete(checks, text)
			}
		}
	}
	for text := range checks {
		t.Errorf("docs/tutorial.md: want a command with %s", text)
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(r.terminals))) { // Redis is in the first
		if verify.All() && name != "3" { // which was killed; else that at work would drain for long
			r.terminals[name].end(t, os.Interrupt)
		}
	}
}

// writes saves the program of the page, which is the one of the repository.
func (r *reader) writes(t *testing.T, text string) {
	t.Helper()
	if want := read(t, filepath.Join(r.root, "examples", "tutorial", "main.go")); text != want {
		t.Error("docs/tutorial.md: want the program of examples/tutorial/main.go")
	}
	expect.OK(t, os.WriteFile(filepath.Join(r.dir, "main.go"), []byte(text), 0o600))
}

// opens starts what serves in a terminal of its own.
func (r *reader) opens(t *testing.T, name, text string) {
	t.Helper()
	line := strings.TrimSpace(text)
	if strings.Contains(line, "--embedded") {
		line += " --embedded-port " + r.embedded
	}
	r.terminals[name] = r.serve(t, r.dir, line, "worker started")
}

// types runs a line in the first terminal, whose folder it may change.
func (r *reader) types(t *testing.T, line string) {
	t.Helper()
	switch {
	case strings.HasPrefix(line, "git clone "):
		return // the clone is there
	case strings.HasPrefix(line, "./lockctl why short"):
		expect.Eventually(t, "a task that waits", func() bool { return r.redis.ZCard(t.Context(), "asynq:{default}:retry").Val() == 1 })
	case strings.HasPrefix(line, "kill -9 "):
		holder := regexp.MustCompile(`pid (\d+)`).FindStringSubmatch(r.outputs["./lockctl show order:1002"])
		expect.Need(t, holder != nil, "want the process that has the lock, have %q", r.outputs)
		line = "kill -9 " + holder[1]
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(line, "../siding", r.root)+"\npwd")
	cmd.Dir, cmd.Env = r.dir, r.env
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	expect.Need(t, err == nil, "%s: %v\n%s%s", line, err, tail(string(out), 2000), tail(errs.String(), 2000))
	said := strings.TrimSuffix(string(out), "\n")
	end := strings.LastIndexByte(said, '\n') + 1
	r.outputs[line], r.dir = said[:end], said[end:]
}

// seesItRun checks what the page says of the first task.
func (r *reader) seesItRun(t *testing.T) {
	t.Helper()
	r.log(t, "3", "level=INFO msg=packing order=1001 ", "level=INFO msg=shipped order=1001 ")
}

// seesItWait checks what the page says of the task that waits, and of the one that does not.
func (r *reader) seesItWait(t *testing.T) {
	t.Helper()
	wantText(t, r.outputs["./lockctl why short"], "waiting for its lock, in its place", "No: the task long on ", "When the holder ends, the first waiter gets the lock at once.")
	r.log(t, "3", "level=INFO msg=packing order=1003 ", "level=INFO msg=shipped order=1003 ")
	if have := r.terminals["3"].Stderr.String(); strings.Contains(have, "task=short") {
		t.Errorf("want the second task waiting, have %s", tail(have, 2000))
	}
	base := regexp.MustCompile(`http=(http://[^/\s]+)`).FindStringSubmatch(r.terminals["2"].Stderr.String())
	expect.Need(t, base != nil, "want the address of the dashboard in the second terminal")
	wantText(t, fetch(t, base[1]+"/locks"), "order:1002")
}

// seesItRecovered checks what the page says of the time after the worker was killed.
func (r *reader) seesItRecovered(t *testing.T) {
	t.Helper()
	killed := time.Now()
	expect.Eventually(t, "the worker of the third terminal killed", func() bool {
		select {
		case <-r.terminals["3"].Ended:
			return true
		default:
			return false
		}
	})
	if have := r.terminals["3"].Cmd.ProcessState.String(); have != "signal: killed" {
		t.Errorf("want it killed, have %s", have)
	}
	r.log(t, "4", "level=INFO msg=packing order=1002 task=long ")
	again := time.Since(killed)
	t.Logf("killed: the task ran again after %.1f s", again.Seconds())
	expect.That(t, again <= killedAgainBy, "want the killed task to run again within %v, have %v", killedAgainBy, again)
	if have := r.terminals["4"].Stderr.String(); strings.Contains(have, "task=short") {
		t.Errorf("want the second task still waiting, have %s", tail(have, 2000))
	}
}

// seesItRunAgain checks what the page says of the recovered task.
func (r *reader) seesItRunAgain(t *testing.T) {
	t.Helper()
	wantText(t, r.outputs["./lockctl why long"], "0 of 25 retries used, 1 worker crash (3 use no retry)", "No: the task has run on ", "3 such crashes use no retry.")
}

// log waits for texts in the log of a terminal.
func (r *reader) log(t *testing.T, terminal string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		expect.Eventually(t, text+"in terminal "+terminal, func() bool { return strings.Contains(r.terminals[terminal].Stderr.String(), text) })
	}
}

// wantText checks that all texts are in have.
func wantText(t *testing.T, have string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		expect.That(t, strings.Contains(have, text), "want %q in %s", text, tail(have, 3000))
	}
}
