package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/expect"
)

// A dashboard that others can reach asks for a password, or the worker does not
// start.
func TestExposedDashboard(t *testing.T) {
	t.Parallel()
	password := filepath.Join(t.TempDir(), "password")
	expect.OK(t, os.WriteFile(password, []byte("sesame\n"), 0o600))
	tests := []struct {
		name    string
		args    []string
		refused bool
	}{
		{"all addresses", []string{"--http", ":0"}, true},
		{"all IPv4 addresses", []string{"--http", "0.0.0.0:0"}, true},
		{"read-only", []string{"--http", "0.0.0.0:0", "--http-read-only"}, true},
		{"demo", []string{"--demo", "--http", "0.0.0.0:0"}, true},
		{"with a password", []string{"--http", "0.0.0.0:0", "--http-password-file", password}, false},
		{"without the dashboard", []string{"--http", "0.0.0.0:0", "--http-dashboard=false"}, false},
		{"on loopback", []string{"--http", "localhost:0"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--embedded", "--embedded-port", port(t, vacant(t)), "--ledger", filepath.Join(t.TempDir(), "ledger.db")}, test.args...)
			if test.name == "demo" {
				args = test.args
			}
			w := start(t, args...)
			if !test.refused {
				address(t, &w.stderr)
				w.stop()
			}
			want := exitOK
			if test.refused {
				want = exitUsage
			}
			if have := w.wait(t, 20*time.Second); have != want {
				t.Errorf("want exit status %d, have %d", want, have)
			}
			if test.refused {
				wantTexts(t, w.stderr.String(), "worker: --http: ", "SIDING_HTTP_PASSWORD", "http.password_file", "http.dashboard false")
			}
		})
	}
}

// The setting takes the metrics away, and nothing else.
func TestServeWithoutMetrics(t *testing.T) {
	t.Parallel()
	w := startWith(t, []string{"SIDING_HTTP_METRICS=false"}, settings(t, "--embedded", "--embedded-port", port(t, vacant(t)))...)
	base := "http://" + address(t, &w.stderr)
	for path, want := range map[string]int{"/metrics": http.StatusNotFound, "/healthz": http.StatusOK} {
		if have, body := fetch(t, base+path); have != want {
			t.Errorf("%s: want %d, have %d %.200s", path, want, have, body)
		}
	}
	w.stop()
	if have := w.wait(t, 20*time.Second); have != exitOK {
		t.Errorf("want exit status 0, have %d", have)
	}
}

func TestServeWithLogin(t *testing.T) {
	t.Parallel()
	const password = "open sesame"
	w := startWith(t, []string{"SIDING_HTTP_PASSWORD=" + password, "SIDING_HTTP_USERNAME=ops"},
		"--embedded", "--embedded-port", port(t, vacant(t)), "--http", "0.0.0.0:0", "--ledger", filepath.Join(t.TempDir(), "ledger.db"), "--log-level", "debug")
	base := "http://127.0.0.1:" + port(t, address(t, &w.stderr))
	as := func(user, password string) string {
		return strings.Replace(base, "http://", "http://"+user+":"+strings.ReplaceAll(password, " ", "%20")+"@", 1)
	}
	for path, want := range map[string]int{
		base + "/healthz":                             http.StatusOK,
		base + "/readyz":                              http.StatusOK,
		base + "/metrics":                             http.StatusOK,
		base + "/dashboard/":                          http.StatusUnauthorized,
		base + "/dashboard/api/queues":                http.StatusUnauthorized,
		as("ops", "sesame") + "/dashboard/":           http.StatusUnauthorized,
		as("siding", password) + "/dashboard/":        http.StatusUnauthorized,
		as("ops", password) + "/dashboard/":           http.StatusOK,
		as("ops", password) + "/":                     http.StatusOK, // which leads there
		as("ops", password) + "/dashboard/api/queues": http.StatusOK,
	} {
		if have, body := fetch(t, path); have != want {
			t.Errorf("%s: want %d, have %d %.200s", path, want, have, body)
		}
	}
	w.stop()
	if have := w.wait(t, 20*time.Second); have != exitOK {
		t.Errorf("want exit status 0, have %d", have)
	}
	expect.That(t, !strings.Contains(w.stderr.String(), "sesame"), "want no password in the log")
}
