package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/testenv/clitest"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/testenv/proc"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "config.yaml")
	expect.OK(t, os.WriteFile(bad, []byte("# mine\nconcurrency: -3\n"), 0o600))
	exposed := filepath.Join(t.TempDir(), "exposed.yaml")
	expect.OK(t, os.WriteFile(exposed, []byte("http:\n  address: 0.0.0.0:1\n"), 0o600))
	tests := []struct {
		name    string
		args    []string
		environ []string
		want    string // of standard error
	}{
		{"unknown flag", []string{"--colour"}, nil, "worker: unknown flag: --colour\nworker: worker --help lists the flags\n"},
		{"misspelt flag", []string{"--lock-tll", "3s"}, nil, "worker: unknown flag: --lock-tll; did you mean --lock-ttl?\nworker: worker --help lists the flags\n"},
		{"no number", []string{"--embedded-port", "x"}, nil, "worker: --embedded-port: want a whole number, have \"x\"\nworker: worker --help lists the flags\n"},
		{"no duration", []string{"--work", "5"}, nil, "worker: --work: want a duration such as 90s or 1h30m, have \"5\"\nworker: worker --help lists the flags\n"},
		{"no bool", []string{"--once=x"}, nil, "worker: --once: want true or false, have \"x\"\nworker: worker --help lists the flags\n"},
		{"exposed by a flag", []string{"--http", "0.0.0.0:1"}, nil, "worker: --http: others can reach 0.0.0.0:1: want SIDING_HTTP_PASSWORD or http.password_file, or http.dashboard false, have neither\n"},
		{"exposed on all addresses", []string{"--http", ":0"}, nil, "worker: --http: others can reach :0: want SIDING_HTTP_PASSWORD or http.password_file, or http.dashboard false, have neither\n"},
		{"exposed, read-only", []string{"--http", "0.0.0.0:1", "--http-read-only"}, nil, "worker: --http: others can reach 0.0.0.0:1: want SIDING_HTTP_PASSWORD or http.password_file, or http.dashboard false, have neither\n"},
		{"exposed demo", []string{"--demo", "--http", "0.0.0.0:1"}, nil, "worker: --http: others can reach 0.0.0.0:1: want SIDING_HTTP_PASSWORD or http.password_file, or http.dashboard false, have neither\n"},
		{"exposed by a variable", nil, []string{"SIDING_HTTP_ADDRESS=0.0.0.0:1"}, "worker: SIDING_HTTP_ADDRESS: others can reach 0.0.0.0:1: want SIDING_HTTP_PASSWORD or http.password_file, or http.dashboard false, have neither\n"},
		{"exposed by a file", []string{"--config", exposed}, nil, "worker: " + exposed + ":2: http.address: others can reach 0.0.0.0:1: want SIDING_HTTP_PASSWORD or http.password_file, or http.dashboard false, have neither\n"},
		{"bad DSN", []string{"--redis", "127.0.0.1:1", "--ledger", "mysql:x"}, nil, "worker: --ledger: DSN scheme: want a path, sqlite:PATH or postgres://..., have \"mysql:\"\n"},
		{"bad DSN in a variable", nil, []string{"SIDING_LEDGER_DSN=sqlite:"}, "worker: SIDING_LEDGER_DSN: DSN \"sqlite:\": want the path of a file, which several connections can share\n"},
		{"bad parameter in a DSN", []string{"--ledger", "postgres://u@h/d?sslmode=bogus"}, nil, "worker: --ledger: DSN \"postgres://u@h/d\": sslmode is invalid\n"},
		{"argument", []string{"start"}, nil, "worker: want no arguments, have [\"start\"]\n"},
		{"bad number", []string{"--concurrency", "-3"}, nil, "worker: --concurrency: want 1 to 10000, have -3\n"},
		{"bad file", []string{"--config", bad}, nil, "worker: " + bad + ":2: concurrency: want 1 to 10000, have -3\n"},
		{"empty file", []string{"--config="}, nil, "worker: --config: want the path of a file, have nothing\nworker: worker --help lists the flags\n"},
		{"bad variable", nil, []string{"SIDING_CONCURRENCY=0"}, "worker: SIDING_CONCURRENCY: want 1 to 10000, have 0\n"},
		{"several mistakes", []string{"--concurrency", "0", "--log-level", "loud"}, nil, "worker: --concurrency: want 1 to 10000, have 0\nworker: --log-level: want debug, info, warn or error, have loud\n"},
		{"password on the command line", []string{"--ledger", "postgres://me:hunter2@db/x"}, nil, "worker: --ledger: want no password on the command line, where others can read it: set SIDING_LEDGER_DSN\n"},
		{"once without demo", []string{"--once"}, nil, "worker: --once: want --demo with it\n"},
		{"embedded port alone", []string{"--embedded-port", "7000"}, nil, "worker: --embedded-port: want --embedded or --demo with it\n"},
		{"bad embedded port", []string{"--embedded", "--embedded-port", "70000"}, nil, "worker: --embedded-port: want 0 to 65535, have 70000\n"},
		{"two servers", []string{"--embedded", "--redis", "a:1"}, nil, "worker: --redis: want another Redis or an embedded one, have both\n"},
		{"demo with a ledger", []string{"--demo", "--ledger", "x"}, nil, "worker: --ledger: want none with --demo, which has its own\n"},
		{"work without end", []string{"--work", "2h"}, nil, "worker: --work: want 0 to 1h, have 2h0m0s\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr proc.Output
			a := &app{stdout: &stdout, stderr: &stderr}
			expect.Equal(t, "exit status", a.program(test.environ).Run(t.Context(), test.args, &stdout, &stderr), exitUsage)
			expect.Equal(t, "standard error", stderr.String(), test.want)
			expect.Equal(t, "standard output", stdout.String(), "")
		})
	}
}

func TestHelpNamesEverySetting(t *testing.T) {
	t.Parallel()
	w := start(t, "--help")
	expect.Equal(t, "exit status", w.wait(t, 5*time.Second), exitOK)
	help := w.stdout.String()
	for _, s := range config.Settings() {
		expect.That(t, s.Flag == "" || strings.Contains(help, "--"+s.Flag+" ") || strings.Contains(help, "--"+s.Flag+"\t"), "want --%s in the help", s.Flag)
	}
	expect.That(t, !strings.Contains(help, "hidden"), "want no default hidden")
}

func TestFlags(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{Use: "worker"}
	(&app{}).command(cmd)
	clitest.Flags(t, cmd)
}
