package dashboard

import (
	"log/slog"
	"net/http"
	"time"
)

// NewServer returns an http.Server for handler with the limits of a server
// that anybody may talk to slowly: 5 s for a request's header of at most 16 KiB,
// 10 s for all of it, 30 s for the answer.
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
