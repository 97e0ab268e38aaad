package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/clitest"
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
	if diff := cmp.Diff(want, have, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("result (-want +have):\n%s", diff)
	}
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
	if err := keys.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// pending returns how many tasks of the queue wait to be taken. Against the
// ids, it shows one that was pushed twice.
func pending(t *testing.T, client *redis.Client, queue string) int {
	t.Helper()
	n, err := client.LLen(t.Context(), "asynq:{"+queue+"}:pending").Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// inspect returns asynq's own view of the server.
func inspect(t *testing.T, server *redistest.Server) *asynq.Inspector {
	t.Helper()
	inspector := asynq.NewInspectorFromRedisClient(server.Client(t))
	return inspector
}

func TestUsage(t *testing.T) {
	t.Parallel()
	const hint = "Run 'enqueue --help' for usage.\n"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no command":        {nil, "enqueue: want a command: orders, stream or task\n" + hint},
		"unknown command":   {[]string{"oders"}, "enqueue: unknown command \"oders\" for \"enqueue\"; did you mean orders?\n" + hint},
		"unknown flag":      {[]string{"--no"}, "enqueue: unknown flag: --no\n" + hint},
		"misspelt flag":     {[]string{"task", "--paylod", "{}"}, "enqueue: unknown flag: --paylod; did you mean --payload?\nRun 'enqueue task --help' for usage.\n"},
		"no number":         {[]string{"task", "order:audit", "--retries", "x"}, "enqueue: --retries: want a whole number, have \"x\"\nRun 'enqueue task --help' for usage.\n"},
		"two kinds":         {[]string{"task", "a", "b"}, "enqueue: want \"task KIND --payload JSON|@FILE|-\", have 2 arguments\nRun 'enqueue task --help' for usage.\n"},
		"no kind":           {[]string{"task", "--payload", "{}"}, "enqueue: want \"task KIND --payload JSON|@FILE|-\", have 0 arguments\nRun 'enqueue task --help' for usage.\n"},
		"no payload":        {[]string{"task", "order:audit"}, "enqueue: required flag(s) \"payload\" not set\nRun 'enqueue task --help' for usage.\n"},
		"no payload file":   {[]string{"task", "order:audit", "--payload", "@/no/such"}, "enqueue: --payload: open /no/such: no such file or directory\nRun 'enqueue task --help' for usage.\n"},
		"bad delay":         {[]string{"task", "order:audit", "--payload", "{}", "--delay", "5"}, "enqueue: --delay: want a duration such as 90s or 1h30m, have \"5\"\nRun 'enqueue task --help' for usage.\n"},
		"bad uniqueness":    {[]string{"task", "order:audit", "--payload", "{}", "--unique-for", "5"}, "enqueue: --unique-for: want a duration such as 90s or 1h30m, have \"5\"\nRun 'enqueue task --help' for usage.\n"},
		"bad policy":        {[]string{"task", "order:audit", "--payload", "{}", "--on-busy", "x"}, "enqueue: --on-busy: want park, reject, coalesce or replace, have \"x\"\nRun 'enqueue task --help' for usage.\n"},
		"bad time":          {[]string{"task", "order:audit", "--payload", "{}", "--at", "noon"}, "enqueue: --at: want a time with its zone such as 2030-01-31T18:00:00Z, have \"noon\"\nRun 'enqueue task --help' for usage.\n"},
		"negative retries":  {[]string{"task", "order:audit", "--payload", "{}", "--retries", "-1"}, "enqueue: --retries: want 0 or more, have -1\nRun 'enqueue task --help' for usage.\n"},
		"no order file":     {[]string{"orders"}, "enqueue: want \"orders FILE.csv[.gz]|-\", have 0 arguments\nRun 'enqueue orders --help' for usage.\n"},
		"order file gone":   {[]string{"orders", "/no/such"}, "enqueue: open /no/such: no such file or directory\nRun 'enqueue orders --help' for usage.\n"},
		"empty payload":     {[]string{"task", "order:audit", "--payload", "@"}, "enqueue: --payload: want the path of a file behind @, have nothing\nRun 'enqueue task --help' for usage.\n"},
		"empty order file":  {[]string{"orders", ""}, "enqueue: want the path of a file, or -, have nothing\nRun 'enqueue orders --help' for usage.\n"},
		"empty settings":    {[]string{"stream", "--config="}, "enqueue: --config: want the path of a file, have nothing\nRun 'enqueue stream --help' for usage.\n"},
		"empty queue":       {[]string{"task", "order:audit", "--payload", "{}", "--queue", ""}, "enqueue: --queue: want a text, have nothing\nRun 'enqueue task --help' for usage.\n"},
		"empty resource":    {[]string{"task", "order:ship", "--payload", "{}", "--resource", ""}, "enqueue: --resource: want a text, have nothing\nRun 'enqueue task --help' for usage.\n"},
		"empty stream":      {[]string{"stream", "--queue="}, "enqueue: --queue: want a text, have nothing\nRun 'enqueue stream --help' for usage.\n"},
		"empty address":     {[]string{"orders", "x", "--redis", ""}, "enqueue: --redis: want a text, have nothing\nRun 'enqueue orders --help' for usage.\n"},
		"orders queue":      {[]string{"orders", "x", "--queue", "{q}"}, "enqueue: --queue: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\\, other than . and .., have \"{q}\"\nRun 'enqueue orders --help' for usage.\n"},
		"orders retention":  {[]string{"orders", "x", "--retention", "500ms"}, "enqueue: --retention: want whole seconds, 1 or more, have \"500ms\"\nRun 'enqueue orders --help' for usage.\n"},
		"stream queue":      {[]string{"stream", "--queue", " "}, "enqueue: --queue: want 1 to 256 bytes of UTF-8 without control characters, blanks at an end and {}/?#%\\, other than . and .., have \" \"\nRun 'enqueue stream --help' for usage.\n"},
		"restart stdin":     {[]string{"stream", "--restart"}, "enqueue: --restart: want a file that can be read twice, which has a checkpoint, have \"-\"\nRun 'enqueue stream --help' for usage.\n"},
		"password shown":    {[]string{"stream", "--redis", "redis://u:secret@host"}, "enqueue: --redis: want no password in an address: set SIDING_REDIS_PASSWORD\nRun 'enqueue stream --help' for usage.\n"},
		"bad address":       {[]string{"stream", "--redis", "http://u:secret@host"}, "enqueue: --redis: want host:port or redis[s]://[user@]host[:port][/db], have [hidden]\nRun 'enqueue stream --help' for usage.\n"},
		"two stream files":  {[]string{"stream", "a", "b"}, "enqueue: accepts at most 1 arg(s), received 2\nRun 'enqueue stream --help' for usage.\n"},
		"restart of device": {[]string{"stream", "/dev/null", "--restart"}, "enqueue: --restart: want a file that can be read twice, which has a checkpoint, have \"/dev/null\"\nRun 'enqueue stream --help' for usage.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantResult(t, result{"", c.want, cli.StatusUsage}, enqueue(t, "", c.args...))
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
			if !strings.Contains(have.out, want) || have.status != cli.StatusOK {
				t.Errorf("%s --help: want it to mention %q with status 0, have %d:\n%s", command, want, have.status, have.out)
			}
		}
	}
}
