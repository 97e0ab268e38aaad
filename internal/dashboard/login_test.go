package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/dashboard"
)

// basic adds a login to a request. A browser that knows a login does so for all requests, whichever
// page makes them.
func basic(user, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

func TestLogin(t *testing.T) {
	t.Parallel()
	const queues, deletion = "/dashboard/api/queues", "/dashboard/api/queues/default/pending_tasks/one"
	const metrics = "/metrics"
	good := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	cfg := dashboard.Config{Username: "me", Password: "sesame", AnyHost: true, Metrics: good}
	readOnly := cfg
	readOnly.ReadOnly = true
	tests := []struct {
		name   string
		cfg    dashboard.Config
		method string
		path   string
		edits  []func(*http.Request)
		want   int
	}{
		{"page without", cfg, http.MethodGet, "/dashboard/", nil, http.StatusUnauthorized},
		{"file without", cfg, http.MethodGet, "/dashboard/favicon.ico", nil, http.StatusUnauthorized},
		{"API without", cfg, http.MethodGet, queues, nil, http.StatusUnauthorized},
		{"API without, read-only", readOnly, http.MethodGet, queues, nil, http.StatusUnauthorized},
		{"deletion without", cfg, http.MethodDelete, deletion, nil, http.StatusUnauthorized},
		{"path that is cleaned, without", cfg, http.MethodGet, "//dashboard/api/../api/queues", nil, http.StatusBadRequest},
		{"page", cfg, http.MethodGet, "/dashboard/", []func(*http.Request){basic("me", "sesame")}, http.StatusOK},
		{"API", cfg, http.MethodGet, queues, []func(*http.Request){basic("me", "sesame")}, http.StatusOK},
		{"deletion", cfg, http.MethodDelete, deletion, []func(*http.Request){basic("me", "sesame")}, http.StatusNoContent},
		{"deletion, read-only", readOnly, http.MethodDelete, deletion, []func(*http.Request){basic("me", "sesame")}, http.StatusMethodNotAllowed},
		{"wrong password", cfg, http.MethodGet, queues, []func(*http.Request){basic("me", "Sesame")}, http.StatusUnauthorized},
		{"longer password", cfg, http.MethodGet, queues, []func(*http.Request){basic("me", "sesame2")}, http.StatusUnauthorized},
		{"no password", cfg, http.MethodGet, queues, []func(*http.Request){basic("me", "")}, http.StatusUnauthorized},
		{"wrong user", cfg, http.MethodGet, queues, []func(*http.Request){basic("you", "sesame")}, http.StatusUnauthorized},
		{"another scheme", cfg, http.MethodGet, queues, []func(*http.Request){header("Authorization", "Bearer bWU6c2VzYW1l")}, http.StatusUnauthorized},
		{"deletion from another site by a browser that is let in", cfg, http.MethodDelete, deletion, []func(*http.Request){basic("me", "sesame"), header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden},
		{"deletion from another origin by a browser that is let in", cfg, http.MethodDelete, deletion, []func(*http.Request){basic("me", "sesame"), header("Origin", "https://other.example")}, http.StatusForbidden},
		{"metrics", cfg, http.MethodGet, metrics, nil, http.StatusOK},
		{"no metrics", dashboard.Config{AnyHost: true}, http.MethodGet, metrics, nil, http.StatusNotFound},
		{"locks without", cfg, http.MethodGet, "/locks", nil, http.StatusUnauthorized},
		{"resource without", cfg, http.MethodGet, "/locks/resource?name=r", nil, http.StatusUnauthorized},
		{"release without", cfg, http.MethodPost, "/locks/resource", nil, http.StatusUnauthorized},
		{"font without", cfg, http.MethodGet, "/files/font/roboto.css", nil, http.StatusUnauthorized},
		{"locks", cfg, http.MethodGet, "/locks", []func(*http.Request){basic("me", "sesame")}, http.StatusOK},
		{"release from another site by a browser that is let in", cfg, http.MethodPost, "/locks/resource", []func(*http.Request){basic("me", "sesame"), header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden},
		{"release", cfg, http.MethodPost, "/locks/resource", []func(*http.Request){basic("me", "sesame"), header("Sec-Fetch-Site", "same-origin")}, http.StatusBadRequest}, // it names no resource
		{"release, read-only", readOnly, http.MethodPost, "/locks/resource", []func(*http.Request){basic("me", "sesame"), header("Sec-Fetch-Site", "same-origin")}, http.StatusForbidden},
		{"alive", cfg, http.MethodGet, "/healthz", nil, http.StatusOK},
		{"ready", cfg, http.MethodGet, "/readyz", nil, http.StatusOK},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			reply := ask(t, setup(t, test.cfg), test.method, test.path, test.edits...)
			if reply.Code != test.want {
				t.Errorf("want %d, have %d %s", test.want, reply.Code, reply.Body)
			}
			asked := strings.HasPrefix(reply.Header().Get("WWW-Authenticate"), "Basic ")
			if want := test.want == http.StatusUnauthorized; asked != want {
				t.Errorf("want the browser to ask for a login: %t, have %t", want, asked)
			}
			if test.want == http.StatusUnauthorized && strings.Contains(reply.Body.String(), "default") {
				t.Errorf("want nothing shown, have %s", reply.Body)
			}
			if have := reply.Header().Get("Access-Control-Allow-Origin"); have != "" {
				t.Errorf("want no other site let in, have %s", have)
			}
		})
	}
}

// Why a worker is not ready may name addresses of the network inside.
func TestReadyTellsWhyToTheTrusted(t *testing.T) {
	t.Parallel()
	const reason = "dial tcp 10.1.2.3:6379: connection refused"
	tests := []struct {
		name  string
		cfg   dashboard.Config
		edits []func(*http.Request)
		want  bool
	}{
		{"on loopback", dashboard.Config{}, nil, true},
		{"elsewhere", dashboard.Config{AnyHost: true}, nil, false},
		{"without the password", dashboard.Config{AnyHost: true, Username: "me", Password: "sesame"}, nil, false},
		{"with a wrong password", dashboard.Config{AnyHost: true, Username: "me", Password: "sesame"}, []func(*http.Request){basic("me", "x")}, false},
		{"with the password", dashboard.Config{AnyHost: true, Username: "me", Password: "sesame"}, []func(*http.Request){basic("me", "sesame")}, true},
		{"on loopback without the password", dashboard.Config{Username: "me", Password: "sesame"}, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.cfg.Ready = func(context.Context) error { return errors.New(reason) }
			reply := ask(t, open(t, test.cfg), http.MethodGet, "/readyz", test.edits...)
			if reply.Code != http.StatusServiceUnavailable || !strings.Contains(reply.Body.String(), `"ready":false`) {
				t.Errorf("want not ready, have %d %s", reply.Code, reply.Body)
			}
			if have := strings.Contains(reply.Body.String(), reason); have != test.want {
				t.Errorf("want the reason told: %t, have %s", test.want, reply.Body)
			}
		})
	}
}
