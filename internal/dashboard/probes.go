package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// patience is how long /readyz waits for the worker's reply. Probes usually wait longer, so the
// reason arrives.
const patience = 2 * time.Second

// alive answers as long as the process serves requests at all.
func alive(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // fails only when the asker has gone
}

// ready answers 200, or 503 and, if the request is trusted, the reason.
func (cfg Config) ready(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Ready  bool   `json:"ready"`
		Reason string `json:"reason,omitempty"`
	}{Ready: true}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if cfg.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		if err := cfg.Ready(ctx); err != nil {
			answer.Ready = false
			if cfg.Password == "" && !cfg.AnyHost || cfg.Password != "" && cfg.loggedIn(r) {
				answer.Reason = err.Error()
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	_ = json.NewEncoder(w).Encode(answer) // fails only when the asker has gone
}
