package dashboard

import (
	"context"
	"errors"
	"net/http"

	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/queue"
)

// RootPath is the path of the asynq dashboard's pages.
const RootPath = "/dashboard"

// maxBody bounds the body of a request. The dashboard's largest requests
// list the ids of one page of tasks.
const maxBody = 1 << 20

// Config configures a [Handler].
type Config struct {
	// Redis has the queues. Nil serves the probes alone.
	Redis *redis.UniversalOptions
	// ReadOnly refuses to change a queue or a task.
	ReadOnly bool
	// The dashboard and its API ask for Username and Password, by HTTP Basic authentication.
	// An empty Password asks for nothing: use it on loopback addresses alone.
	Username, Password string
	// AnyHost accepts requests for every host name. On a loopback address, see [Loopback], set
	// AnyHost only together with a Password, which a page of another site does not know.
	AnyHost bool
	// Ready returns why the worker is not ready, nil when it is. A nil Ready is always ready.
	// Each request of /readyz calls Ready, with a context that ends after 2 s. Ready must be
	// safe for concurrent use. Its error may contain addresses. The reply has the error only for
	// those who give the Password; without a Password for all, but with AnyHost for nobody.
	Ready func(context.Context) error
}

// A Handler answers the requests. The caller must Close it once no request is
// running any more.
type Handler struct {
	http.Handler
	close func() error
}

// New returns the handler for cfg. It does not connect to Redis yet: while that
// cannot be reached, the dashboard answers with errors and the probes work.
func New(cfg Config) (*Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", cfg.ready)
	h := &Handler{Handler: cfg.protect(http.MaxBytesHandler(mux, maxBody)), close: func() error { return nil }}
	if cfg.Redis == nil {
		return h, nil
	}
	mon := asynqmon.New(asynqmon.Options{
		RootPath:     RootPath,
		RedisConnOpt: queue.RedisOpt(*cfg.Redis),
		ReadOnly:     cfg.ReadOnly,
	})
	h.close = mon.Close
	files, err := newFiles()
	if err != nil {
		return nil, errors.Join(err, mon.Close())
	}
	offline, err := newPages(mon, files.head())
	if err != nil {
		return nil, errors.Join(err, mon.Close())
	}
	mux.Handle(RootPath+"/", cfg.guard(offline))
	mux.Handle(files.font.Path(), cfg.guard(files.font))
	mux.Handle(files.own.Path(), cfg.guard(files.own))
	mux.Handle("GET /{$}", http.RedirectHandler(RootPath+"/", http.StatusFound))
	return h, nil
}

// Close closes the dashboard's connections to Redis.
func (h *Handler) Close() error { return h.close() }
