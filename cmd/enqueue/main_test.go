package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/clitest"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/redistest"
)

// asCommand makes this test program act as the command: see TestSignal.
const asCommand = "SIDING_TEST_AS_ENQUEUE"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// A result is how a run of the program ended.
type result struct {
	out, err string
	status   int
}

// enqueue runs the program in an empty environment.
func enqueue(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return enqueueIn(t.Context(), nil, stdin, args...)
}

func enqueueIn(ctx context.Context, environ []string, stdin string, args ...string) result {
	var out, err bytes.Buffer
	a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &err, environ: environ}
	status := a.run(ctx, args)
	return result{out.String(), unserved.ReplaceAllString(err.String(), ""), status}
}

// unserved finds what the program says where there is no worker, which is so in all tests but one.
var unserved = regexp.MustCompile(`(?m)^enqueue: no worker serves the queue .*\n`)

// wantResult compares a run with what is wanted of it.
func wantResult(t *testing.T, want, have result) {
	t.Helper()
	expect.Same(t, "result", have, want, cmp.AllowUnexported(result{}))
}

// ids returns the ids of all tasks that the queue has, in any state.
func ids(t *testing.T, client *redis.Client, queue string) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	prefix := "asynq:{" + queue + "}:t:"
	keys := client.Scan(t.Context(), 0, prefix+"*", 1000).Iterator()
	for keys.Next(t.Context()) {
		found[strings.TrimPrefix(keys.Val(), prefix)] = true
	}
	expect.OK(t, keys.Err())
	return found
}

// pending returns how many tasks of the queue wait to be taken. Against the
// ids, it shows one that was pushed twice.
func pending(t *testing.T, client *redis.Client, queue string) int {
	t.Helper()
	n := expect.Value(client.LLen(t.Context(), "asynq:{"+queue+"}:pending").Result())(t)
	return int(n)
}

// writeFile returns the path of a new file with the text.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// inspect returns asynq's own view of the server.
func inspect(t *testing.T, server *redistest.Server) *asynq.Inspector {
	t.Helper()
	return asynq.NewInspectorFromRedisClient(server.Client(t))
}

func TestUsage(t *testing.T) {
	t.Parallel()
	task := func(args ...string) []string {
		return append([]string{"task", "order:audit", "--payload", "{}"}, args...)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no command":        {nil, "want a command: orders, stream or task"},
		"unknown command":   {[]string{"oders"}, "unknown command \"oders\" for \"enqueue\"; did you mean orders?"},
		"unknown flag":      {[]string{"--no"}, "unknown flag: --no"},
		"misspelt flag":     {[]string{"task", "--paylod", "{}"}, "unknown flag: --paylod; did you mean --payload?"},
		"no number":         {[]string{"task", "order:audit", "--retries", "x"}, "--retries: want a whole number, have \"x\""},
		"two kinds":         {[]string{"task", "a", "b"}, "want \"task KIND --payload JSON|@FILE|-\", have [\"a\" \"b\"]"},
		"no kind":           {[]string{"task", "--payload", "{}"}, "want \"task KIND --payload JSON|@FILE|-\", have no arguments"},
		"no payload":        {[]string{"task", "order:audit"}, "required flag(s) \"payload\" not set"},
		"no payload file":   {[]string{"task", "order:audit", "--payload", "@/no/such"}, "--payload: open /no/such: no such file or directory"},
		"bad delay":         {task("--delay", "5"), "--delay: want a duration such as 90s or 1h30m, have \"5\""},
		"bad uniqueness":    {task("--unique-for", "5"), "--unique-for: want a duration such as 90s or 1h30m, have \"5\""},
		"bad policy":        {task("--on-busy", "x"), "--on-busy: want park, reject, coalesce or replace, have \"x\""},
		"bad time":          {task("--at", "noon"), "--at: want a time with its zone such as 2030-01-31T18:00:00Z, have \"noon\""},
		"negative retries":  {task("--retries", "-1"), "--retries: want 0 or more, have -1"},
		"no order file":     {[]string{"orders"}, "want \"orders FILE.csv[.gz]|-\", have no arguments"},
		"order file gone":   {[]string{"orders", "/no/such"}, "open /no/such: no such file or directory"},
		"empty payload":     {[]string{"task", "order:audit", "--payload", "@"}, "--payload: want the path of a file behind @, have nothing"},
		"empty order file":  {[]string{"orders", ""}, "want the path of a file, or -, have nothing"},
		"empty queue":       {task("--queue", ""), "--queue: want a text, have nothing"},
		"empty resource":    {[]string{"task", "order:ship", "--payload", "{}", "--resource", ""}, "--resource: want a text, have nothing"},
		"empty stream":      {[]string{"stream", "--queue="}, "--queue: want a text, have nothing"},
		"empty address":     {[]string{"orders", "x", "--redis", ""}, "--redis: want a text, have nothing"},
		"orders queue":      {[]string{"orders", "x", "--queue", "{q}"}, "--queue: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\\, other than . and .., have \"{q}\""},
		"orders retention":  {[]string{"orders", "x", "--retention", "500ms"}, "--retention: want whole seconds, 1 or more, have \"500ms\""},
		"stream queue":      {[]string{"stream", "--queue", " "}, "--queue: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\\, other than . and .., have \" \""},
		"restart stdin":     {[]string{"stream", "--restart"}, "--restart: want a file that can be read twice, which has a checkpoint, have \"-\""},
		"password shown":    {[]string{"stream", "--redis", "redis://u:secret@host"}, "--redis: want host:port, have a URL: what else it has is in redis.tls, redis.username, redis.db and SIDING_REDIS_PASSWORD"},
		"two stream files":  {[]string{"stream", "a", "b"}, "accepts at most 1 arg(s), received 2"},
		"restart of device": {[]string{"stream", "/dev/null", "--restart"}, "--restart: want a file that can be read twice, which has a checkpoint, have \"/dev/null\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := "enqueue"
			if len(c.args) > 0 && slices.Contains([]string{"orders", "stream", "task"}, c.args[0]) {
				of += " " + c.args[0]
			}
			wantResult(t, result{"", "enqueue: " + c.want + "\nRun '" + of + " --help' for usage.\n", cli.StatusUsage}, enqueue(t, "", c.args...))
		})
	}
}

// A file that a setting names, and that is not there, is a mistake in the settings, as any other.
func TestFileOfASetting(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"task", "order:audit", "--payload", `{"order":"1"}`}, {"stream"}} {
		want := result{"", "enqueue: SIDING_REDIS_PASSWORD_FILE: open /no/such: no such file or directory\nRun 'enqueue " + command[0] + " --help' for usage.\n", cli.StatusUsage}
		wantResult(t, want, enqueueIn(t.Context(), []string{"SIDING_REDIS_PASSWORD_FILE=/no/such"}, "", command...))
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	clitest.Flags(t, (&app{}).root())
}

func TestHelpTellsTheMeansAndTheirLimit(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"stream", "orders"} {
		have := enqueue(t, "", command, "--help")
		for _, want := range []string{"checkpoint", "30 days", "kill -9", "retention", "journal"} {
			expect.That(t, strings.Contains(have.out, want) && have.status == cli.StatusOK, "%s --help: want it to mention %q with status 0, have %d:\n%s", command, want, have.status, have.out)
		}
	}
}
