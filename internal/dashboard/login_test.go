package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/dashboard"
	"github.com/sidingq/siding/internal/testenv/expect"
)

// basic adds a login to a request. A browser that knows a login does so for all requests, whichever
// page makes them.
func basic(user, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

// Who may do what, on a loopback address without a password, and elsewhere with one.
func TestRequests(t *testing.T) {
	t.Parallel()
	const queues, deletion, metrics = "/dashboard/api/queues", "/dashboard/api/queues/default/pending_tasks/one", "/metrics"
	good := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	local, closed, login := dashboard.Config{}, dashboard.Config{Username: "me", Password: "sesame", AnyHost: true, Metrics: good}, basic("me", "sesame")
	type edits = []func(*http.Request)
	for name, tt := range map[string]struct {
		cfg      dashboard.Config
		readOnly bool
		method   string
		path     string
		edits    edits
		want     int
	}{
		"root leads to the dashboard":    {local, false, http.MethodGet, "/", nil, http.StatusFound},
		"root path without slash":        {local, false, http.MethodGet, "/dashboard", nil, http.StatusTemporaryRedirect},
		"queues on a loopback address":   {local, false, http.MethodGet, "/dashboard/api/queues", nil, http.StatusOK},
		"unknown path":                   {local, false, http.MethodGet, "/nothing", nil, http.StatusNotFound},
		"page is only read":              {local, false, http.MethodPost, "/dashboard/servers", nil, http.StatusMethodNotAllowed},
		"deletion on a loopback address": {local, false, http.MethodDelete, deletion, nil, http.StatusNoContent},
		"deletion from our page":         {local, false, http.MethodDelete, deletion, edits{header("Sec-Fetch-Site", "same-origin")}, http.StatusNoContent},
		"deletion when read-only":        {local, true, http.MethodDelete, deletion, nil, http.StatusMethodNotAllowed},
		"reading when read-only":         {local, true, http.MethodGet, "/dashboard/api/queues", nil, http.StatusOK},
		"deletion from another site":     {local, false, http.MethodDelete, deletion, edits{header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden},
		"deletion from another origin":   {local, false, http.MethodDelete, deletion, edits{header("Origin", "https://other.example")}, http.StatusForbidden},
		"another host name":              {local, false, http.MethodGet, "/dashboard/api/queues", edits{host("other.example:8080")}, http.StatusMisdirectedRequest},
		"another host name, allowed":     {dashboard.Config{AnyHost: true}, false, http.MethodGet, "/dashboard/api/queues", edits{host("other.example")}, http.StatusOK},
		"host without port":              {local, false, http.MethodGet, "/healthz", edits{host("localhost")}, http.StatusOK},
		"IPv4 host":                      {local, false, http.MethodGet, "/healthz", edits{host("127.0.0.1:8080")}, http.StatusOK},
		"IPv6 host":                      {local, false, http.MethodGet, "/healthz", edits{host("[::1]:8080")}, http.StatusOK},
		"IPv6 host without port":         {local, false, http.MethodGet, "/healthz", edits{host("[::1]")}, http.StatusOK},
		"page without":                   {closed, false, http.MethodGet, "/dashboard/", nil, http.StatusUnauthorized},
		"file without":                   {closed, false, http.MethodGet, "/dashboard/favicon.ico", nil, http.StatusUnauthorized},
		"API without":                    {closed, false, http.MethodGet, queues, nil, http.StatusUnauthorized},
		"API without, read-only":         {closed, true, http.MethodGet, queues, nil, http.StatusUnauthorized},
		"deletion without":               {closed, false, http.MethodDelete, deletion, nil, http.StatusUnauthorized},
		"path that is cleaned, without":  {closed, false, http.MethodGet, "//dashboard/api/../api/queues", nil, http.StatusBadRequest},
		"page":                           {closed, false, http.MethodGet, "/dashboard/", edits{login}, http.StatusOK},
		"API":                            {closed, false, http.MethodGet, queues, edits{login}, http.StatusOK},
		"deletion":                       {closed, false, http.MethodDelete, deletion, edits{login}, http.StatusNoContent},
		"deletion, read-only":            {closed, true, http.MethodDelete, deletion, edits{login}, http.StatusMethodNotAllowed},
		"wrong password":                 {closed, false, http.MethodGet, queues, edits{basic("me", "Sesame")}, http.StatusUnauthorized},
		"longer password":                {closed, false, http.MethodGet, queues, edits{basic("me", "sesame2")}, http.StatusUnauthorized},
		"no password":                    {closed, false, http.MethodGet, queues, edits{basic("me", "")}, http.StatusUnauthorized},
		"wrong user":                     {closed, false, http.MethodGet, queues, edits{basic("you", "sesame")}, http.StatusUnauthorized},
		"another scheme":                 {closed, false, http.MethodGet, queues, edits{header("Authorization", "Bearer bWU6c2VzYW1l")}, http.StatusUnauthorized},
		"deletion from another site by a browser that is let in":   {closed, false, http.MethodDelete, deletion, edits{login, header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden},
		"deletion from another origin by a browser that is let in": {closed, false, http.MethodDelete, deletion, edits{login, header("Origin", "https://other.example")}, http.StatusForbidden},
		"metrics":          {closed, false, http.MethodGet, metrics, nil, http.StatusOK},
		"no metrics":       {dashboard.Config{AnyHost: true}, false, http.MethodGet, metrics, nil, http.StatusNotFound},
		"locks without":    {closed, false, http.MethodGet, "/locks", nil, http.StatusUnauthorized},
		"resource without": {closed, false, http.MethodGet, "/locks/resource?name=r", nil, http.StatusUnauthorized},
		"release without":  {closed, false, http.MethodPost, "/locks/resource", nil, http.StatusUnauthorized},
		"font without":     {closed, false, http.MethodGet, "/locks/files/roboto.css", nil, http.StatusUnauthorized},
		"locks":            {closed, false, http.MethodGet, "/locks", edits{login}, http.StatusOK},
		"release from another site by a browser that is let in": {closed, false, http.MethodPost, "/locks/resource", edits{login, header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden},
		"release":            {closed, false, http.MethodPost, "/locks/resource", edits{login, header("Sec-Fetch-Site", "same-origin")}, http.StatusBadRequest}, // it names no resource
		"release, read-only": {closed, true, http.MethodPost, "/locks/resource", edits{login, header("Sec-Fetch-Site", "same-origin")}, http.StatusForbidden},
		"alive":              {closed, false, http.MethodGet, "/healthz", nil, http.StatusOK},
		"ready":              {closed, false, http.MethodGet, "/readyz", nil, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.cfg.ReadOnly = tt.readOnly
			reply := ask(t, setup(t, tt.cfg), tt.method, tt.path, tt.edits...)
			expect.That(t, reply.Code == tt.want, "want %d, have %d %s", tt.want, reply.Code, reply.Body)
			asked := strings.HasPrefix(reply.Header().Get("WWW-Authenticate"), "Basic ")
			if want := tt.want == http.StatusUnauthorized; asked != want {
				t.Errorf("want the browser to ask for a login: %t, have %t", want, asked)
			}
			expect.That(t, tt.want != http.StatusUnauthorized || !strings.Contains(reply.Body.String(), "default"), "want nothing shown, have %s", reply.Body)
			expect.Equal(t, "other site that is let in", reply.Header().Get("Access-Control-Allow-Origin"), "")
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
			expect.That(t, reply.Code == http.StatusServiceUnavailable && strings.Contains(reply.Body.String(), `"ready":false`), "want not ready, have %d %s", reply.Code, reply.Body)
			if have := strings.Contains(reply.Body.String(), reason); have != test.want {
				t.Errorf("want the reason told: %t, have %s", test.want, reply.Body)
			}
		})
	}
}
