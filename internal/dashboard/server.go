package dashboard

import (
	"log/slog"
	"net/http"
	"time"
)

// NewServer returns an http.Server for handler that slow clients cannot block. A request has 5 s
// for its header, of at most 16 KiB, and 10 s in all. The reply has 30 s.
func NewServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		// Longer than the dashboard waits for an unreachable Redis, so that
		// its error arrives.
		WriteTimeout:   30 * time.Second,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
