package main

import (
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/queue"
	"github.com/sidingq/siding/tasks"
)

// A task of an unknown kind needs a resource, and that of a known kind is what its payload says. The
// errors of task and stream are the same ones.
func TestKindsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ kind, payload, resource, want string }{
		"unknown without a resource": {"order:ship", `{"order":"1"}`, "", `resource: want one with the kind "order:ship", which is none of ` + strings.Join(tasks.Kinds(), ", ") + `, have nothing`},
		"no kind":                    {"", `{}`, "order:1", `kind: want one of ` + strings.Join(tasks.Kinds(), ", ") + `, or one of your own, have nothing`},
		"long kind":                  {strings.Repeat("k", 257), `{}`, "order:1", `main.foreignTask: kind: want 1 to 256 bytes of UTF-8, have "` + strings.Repeat("k", 80) + `…"`},
		"other resource":             {"order:audit", `{"order":"1"}`, "order:2", `order:audit: resource: want "order:1" as its payload says, or none, have "order:2"`},
		"bad resource":               {"order:ship", `{}`, "order:{1", `order:ship: resource: lock: bad resource name: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: "order:{1"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task, want := []string{"task", c.kind, "--redis", "127.0.0.1:1", "--payload", c.payload}, c.want
			if c.resource != "" {
				task = append(task, "--resource", c.resource)
			} else {
				want = "--" + want // it begins with the resource, which is a flag of task
			}
			wantResult(t, result{"", "enqueue: " + want + "\n", exitRefused}, enqueue(t, "", task...))
			stream := enqueue(t, `{"kind":"`+c.kind+`","payload":`+c.payload+`,"resource":"`+c.resource+`"}`, "stream", "--dry-run")
			expect.That(t, stream.status == exitRefused && strings.Contains(stream.out, "line 1: "+c.want+"\n"), "stream: want %q, have %+v", c.want, stream)
		})
	}
}

// A payload of a kind of the user's own may be any JSON but null, and nothing else. The error does not show it.
func TestPayloadsOfOtherKinds(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"order": "1"}`:   "",
		`"1"`:              "",
		`[1, 2]`:           "",
		` null`:            "payload: want a value, have null",
		``:                 "payload: want JSON: unexpected end of JSON input",
		`{"secret":`:       "payload: want JSON: unexpected end of JSON input",
		`{} {}`:            "payload: want JSON: invalid character '{' after top-level value",
		"{\"a\":\"\xff\"}": "payload: want JSON: it is not UTF-8",
	} {
		have := enqueue(t, "", "task", "test:ship", "--dry-run", "--resource", "order:1", "--payload", payload)
		if want == "" {
			wantResult(t, result{"test:ship is valid\n", "", cli.StatusOK}, have)
		} else {
			wantResult(t, result{"", "enqueue: test:ship: " + want + "\n", exitRefused}, have)
		}
	}
	have := enqueue(t, `{"kind":"test:ship","resource":"order:1"}`, "stream", "--dry-run")
	if want := "line 1: test:ship: payload: want JSON: unexpected end of JSON input\n"; !strings.Contains(have.out, want) {
		t.Errorf("stream: want %q, have %q", want, have.out)
	}
}

// A task may need several resources: each has a flag of its own, and a line has a list of them.
func TestSeveralResources(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		`["account:2","account:1"]`: "\naccount:1\naccount:2",
		`["account:1"]`:             "account:1",
		`"account:1"`:               "account:1",
	} {
		_, jobs := decodeAll(t, streamDecoder{}, `{"kind":"cash:move","payload":{},"resource":`+list+`}`)
		expect.Need(t, len(jobs) == 1, "%s: want a job, have %v", list, jobs)
		if have, ok := jobs[0].Task.(queue.Guarded); !ok || have.Resource() != want {
			t.Errorf("%s: want %q, have %v", list, want, have)
		}
	}
	command := []string{"task", "cash:move", "--payload", "{}", "--dry-run", "--resource", "account:1"}
	wantResult(t, result{"cash:move is valid\n", "", cli.StatusOK}, enqueue(t, "", append(command, "--resource", "account:2")...))
	have := enqueue(t, "", append(command, "--resource", "account:{2")...)
	expect.That(t, have.status == exitRefused && strings.Contains(have.err, `braces have to be in pairs`), "want the second one refused, have %+v", have)
}

// A kind of an input cannot change the terminal of an operator.
func TestKindWithControlCharacters(t *testing.T) {
	t.Parallel()
	const kind = `\u001b]0;owned\u0007\u001b[2Jdone` // as JSON has it
	stream := enqueue(t, `{"kind":"`+kind+`","resource":"r","payload":{},"priority":99}`, "stream", "--dry-run")
	task := enqueue(t, "", "task", "\x1b[2J", "--dry-run", "--resource", "r", "--payload", "{}", "--timeout", "1ms")
	for _, text := range []string{stream.out, stream.err, task.out, task.err} {
		expect.That(t, !strings.ContainsAny(text, "\x1b\x07"), "want no control characters, have %q", text)
	}
	expect.That(t, stream.status == exitRefused && task.status == exitRefused, "want both refused, have %+v, %+v", stream, task)
}
