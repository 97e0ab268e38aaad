package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/clitest"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// Whatever is wrong on the command line is said before Redis is asked.
func TestUsage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string // without the hint
	}{
		"no command":             {nil, "want a command: archive, delete, doctor, limit, list, queue, release, run, show, tasks or why"},
		"unknown command":        {[]string{"lst"}, "unknown command \"lst\" for \"lockctl\"; did you mean list?"},
		"unknown subcommand":     {[]string{"limit", "ste"}, "unknown command \"ste\" for \"lockctl limit\"; did you mean set?"},
		"nothing like it":        {[]string{"frobnicate"}, "unknown command \"frobnicate\" for \"lockctl\""},
		"minus":                  {[]string{"show", "-1"}, "want a flag, or -- before arguments that begin with a minus, have \"-1\""},
		"no limit":               {[]string{"limit", "set", "siding-x", "0", "--reason", "y"}, "pattern: want a name that does not begin with \"siding-\", as such resources have no limit, have \"siding-x\""},
		"unknown flag":           {[]string{"list", "--no"}, "unknown flag: --no"},
		"misspelt flag":          {[]string{"list", "--filtr", "x"}, "unknown flag: --filtr; did you mean --filter?"},
		"argument of list":       {[]string{"list", "x"}, "want no arguments, have [\"x\"]"},
		"sort":                   {[]string{"list", "--sort", "age"}, "--sort: want waiters, oldest, left, resource, since, have \"age\""},
		"no resource":            {[]string{"show"}, "want \"show RESOURCE\", have no arguments"},
		"two resources":          {[]string{"show", "a", "b"}, "want \"show RESOURCE\", have [\"a\" \"b\"]"},
		"empty resource":         {[]string{"show", ""}, "lock: bad resource name: it is empty"},
		"braces":                 {[]string{"show", "order:{1"}, "lock: bad resource name: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: \"order:{1\""},
		"control character":      {[]string{"show", "a\nb"}, "lock: bad resource name: it holds a control character: \"a\\nb\""},
		"from":                   {[]string{"show", "x", "--from", "0"}, "--from: want 1 to 1000, have 0"},
		"count":                  {[]string{"show", "x", "--count", "-1"}, "--count: want 0 to 1000, have -1"},
		"count no number":        {[]string{"show", "x", "--count", "many"}, "--count: want a whole number, have \"many\""},
		"no task":                {[]string{"why"}, "want \"why TASK\", have no arguments"},
		"empty queue":            {[]string{"delete", "x", "--reason", "y", "--yes", "--queue", ""}, "--queue: want a text, have nothing"},
		"empty task":             {[]string{"why", ""}, "want the id of a task, have nothing"},
		"no reason":              {[]string{"release", "x", "--yes"}, "required flag(s) \"reason\" not set"},
		"empty reason":           {[]string{"release", "x", "--reason", " "}, "--reason: want a text, have nothing"},
		"empty name":             {[]string{"release", "x", "--reason", "y", "--by", ""}, "--by: want a text, have nothing"},
		"bad reason":             {[]string{"release", "x", "--reason", "a\x1bb"}, "--reason: want text without control characters, have \"a\\x1bb\""},
		"bad fence":              {[]string{"release", "x", "--reason", "y", "--fence", "-1"}, "--fence: want 0 or more, have -1"},
		"no fence":               {[]string{"release", "x", "--reason", "y", "--fence", "abc"}, "--fence: want a whole number, have \"abc\""},
		"huge fence":             {[]string{"release", "x", "--reason", "y", "--fence", "9999999999999999999"}, "--fence: want a whole number of at most 18 digits, have \"9999999999999999999\""},
		"release braces":         {[]string{"release", "{x", "--reason", "y"}, "lock: bad resource name: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: \"{x\""},
		"password shown":         {[]string{"list", "--redis", "redis://u:secret@host"}, "--redis: want host:port, have a URL: what else it has is in redis.tls, redis.username, redis.db and SIDING_REDIS_PASSWORD"},
		"empty settings":         {[]string{"list", "--config="}, "--config: want the path of a file, have nothing"},
		"argument of why":        {[]string{"why", "a", "b"}, "want \"why TASK\", have [\"a\" \"b\"]"},
		"no limit command":       {[]string{"limit"}, "want a command: list, set or unset"},
		"unknown limit command":  {[]string{"limit", "x"}, "unknown command \"x\" for \"lockctl limit\""},
		"limit without a number": {[]string{"limit", "set", "a", "--reason", "r"}, "want \"set PATTERN HOLDERS --reason TEXT\", have [\"a\"]"},
		"limit below zero":       {[]string{"limit", "set", "a", "-1", "--reason", "r"}, "want a flag, or -- before arguments that begin with a minus, have \"-1\""},
		"limit as a flag":        {[]string{"limit", "set", "a", "-x", "--reason", "r"}, "unknown shorthand flag: 'x' in -x"},
		"bad limit":              {[]string{"limit", "set", "a*", "abc", "--rate", "100"}, "pattern: want a resource, a pattern that ends in \":*\" such as \"account:*\", or \"*\", have \"a*\"; holders: want a whole number from 0 to 1000, have \"abc\"; --rate: want starts/period such as 100/1s, have \"100\"; --reason: want a text, have nothing"},
		"limit too high":         {[]string{"limit", "set", "a", "1001"}, "holders: want a whole number from 0 to 1000, have \"1001\"; --reason: want a text, have nothing"},
		"limit without a reason": {[]string{"limit", "set", "a", "1"}, "--reason: want a text, have nothing"},
		"rate of no number":      {[]string{"limit", "set", "a", "1", "--reason", "r", "--rate", "1/s"}, "--rate: want starts/period such as 100/1s, have \"1/s\""},
		"rate of none":           {[]string{"limit", "set", "a", "1", "--reason", "r", "--rate", "0/1s"}, "--rate: starts: want 1 to 10000, have 0"},
		"rate of no time":        {[]string{"limit", "set", "a", "1", "--reason", "r", "--rate", "1/0s"}, "--rate: period: want 1ms to 744h0m0s, have 0s"},
		"long name":              {[]string{"limit", "set", "a", "1", "--reason", "r", "--by", strings.Repeat("x", 201)}, "--by: want at most 200 bytes, have 201"},
		"no pattern":             {[]string{"limit", "unset"}, "want \"unset PATTERN\", have no arguments"},
		"argument of limit list": {[]string{"limit", "list", "x"}, "want no arguments, have [\"x\"]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meant, _, _ := newApp(nil, nil, nil, nil).root().Find(c.args)
			want := "lockctl: " + c.want + "\nRun '" + meant.CommandPath() + " --help' for usage.\n"
			wantResult(t, result{"", want, cli.StatusUsage}, lockctl(t, c.args...))
		})
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	clitest.Flags(t, newApp(nil, nil, nil, nil).root())
}

// commandLines are one of each command.
var commandLines = [][]string{
	{"list"},
	{"list", "--all"},
	{"show", "order:1"},
	{"why", "77ab09"},
	{"release", "order:1", "--reason", "drill", "--yes"},
	{"limit", "list"},
	{"limit", "set", "order:1", "2", "--reason", "drill"},
	{"limit", "unset", "order:1"},
	{"doctor"},
	{"tasks"},
	{"run", "77ab09"},
	{"archive", "77ab09", "--reason", "drill", "--yes"},
	{"delete", "77ab09", "--reason", "drill", "--yes"},
	{"queue", "pause", "default", "--reason", "drill", "--yes"},
	{"queue", "resume", "default"},
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range append([][]string{{}, {"limit"}}, commandLines...) {
		words := 1
		if len(args) > 0 && (args[0] == "limit" || args[0] == "queue") {
			words = 2
		}
		command := slices.Clone(args[:min(words, len(args))])
		have := lockctl(t, append(command, "--help")...)
		expect.That(t, have.status == cli.StatusOK && have.err == "", "%q: want status 0, have %+v", command, have)
		for _, want := range []string{"Exit status: 0 all is well; 1 a fault", "Examples:\n  lockctl ", "--redis", "--config", "--json"} {
			expect.That(t, strings.Contains(have.out, want), "%q: want %q in the help, have\n%s", command, want, have.out)
		}
		if hidden := len(command) > 0; strings.Contains(have.out, "--redis-tls-ca-file") == hidden {
			t.Errorf("%q: want the flags of all settings in the help of the program alone, have\n%s", command, have.out)
		}
		wantResult(t, have, lockctl(t, append([]string{"help"}, command...)...))
	}
	for want, args := range map[string][]string{
		`unknown command "lst" for "lockctl"; did you mean list?`:      {"help", "lst"},
		`unknown command "ste" for "lockctl limit"; did you mean set?`: {"help", "limit", "ste"},
		`unknown command "order:1" for "lockctl show"`:                 {"help", "show", "order:1"},
	} {
		wantResult(t, result{"", "lockctl: " + want + "\nRun 'lockctl help --help' for usage.\n", cli.StatusUsage}, lockctl(t, args...))
	}
}

// Whatever is wrong with Redis, each command says so and ends soon.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	clitest.Away(t, "lockctl", "\n", commandLines, func(t *testing.T, args ...string) (string, int) { // an embedded Redis is of no help here
		t.Helper()
		have := lockctl(t, args...)
		expect.That(t, have.out == "", "want nothing on standard output, have %q", have.out)
		return have.err, have.status
	})
}

// A shell completes commands and flags. Tasks and locks are no files.
func TestNoFilesAreCompleted(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{"why": ":4\n", "show": ":4\n", "--config": "yaml\nyml\n:8\n"} {
		words := slices.Concat([]string{"__complete"}, strings.Fields(args), []string{""})
		expect.Equal(t, args, lockctl(t, words...).out, want)
	}
}
