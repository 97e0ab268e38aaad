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

// The settings take the metrics and the dashboard away, and nothing else. Without the dashboard others may reach the worker.
func TestServeWithoutMetrics(t *testing.T) {
	t.Parallel()
	w := startWith(t, []string{"SIDING_HTTP_METRICS=false"}, settings(t, "--embedded", "--embedded-port", port(t, vacant(t)), "--http", "0.0.0.0:0", "--http-dashboard=false")...)
	base := "http://127.0.0.1:" + port(t, address(t, &w.stderr))
	for path, want := range map[string]int{"/metrics": http.StatusNotFound, "/dashboard/": http.StatusNotFound, "/healthz": http.StatusOK} {
		if have, body := fetch(t, base+path); have != want {
			t.Errorf("%s: want %d, have %d %.200s", path, want, have, body)
		}
	}
	w.end(t, 20*time.Second)
}

func TestServeWithLogin(t *testing.T) {
	t.Parallel()
	const password = "open sesame"
	file := filepath.Join(t.TempDir(), "password")
	expect.OK(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	w := startWith(t, []string{"SIDING_HTTP_PASSWORD_FILE=" + file, "SIDING_HTTP_USERNAME=ops"},
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
	w.end(t, 20*time.Second)
	expect.That(t, !strings.Contains(w.stderr.String(), "sesame"), "want no password in the log")
}
