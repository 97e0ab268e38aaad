package dashboard

import (
	"context"
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
	// Redis has the queues. Nil serves the probes and the metrics alone.
	Redis *redis.UniversalOptions
	// ReadOnly refuses to change a queue or a task.
	ReadOnly bool
	// The dashboard and its API ask for Username and Password, by HTTP Basic authentication.
	// An empty Password asks for nothing: use it on loopback addresses alone.
	Username, Password string
	// AnyHost accepts requests for every host name. On a loopback address, see [Loopback], set
	// AnyHost only together with a Password. A page of another site does not know the password.
	AnyHost bool
	// Ready returns why the worker is not ready, nil when it is. A nil Ready is always ready.
	// Each request of /readyz calls Ready, with a context that ends after 2 s. Ready must be
	// safe for concurrent use. Its error may contain addresses. The reply has the error only for
	// those who give the Password; without a Password for all, but with AnyHost for nobody.
	Ready func(context.Context) error
	// Metrics answers GET /metrics, which needs no login. Nil serves no metrics.
	Metrics http.Handler
	// Contention answers GET /debug/siding/contention, which needs the login. It is served with the
	// dashboard only. May be nil.
	Contention http.Handler
}

// A Handler answers the requests. The caller must Close it once no request is
// running any more.
type Handler struct {
	http.Handler
	close func() error
}

// New returns the handler for cfg. New does not connect to Redis yet. While Redis cannot be
// reached, the dashboard answers with errors, and the probes work.
func New(cfg Config) (*Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", cfg.ready)
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
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
	offline, err := newPages(mon)
	if err != nil {
		return nil, err
	}
	mux.Handle(RootPath+"/", cfg.guard(offline))
	if cfg.Contention != nil {
		mux.Handle("GET /debug/siding/contention", cfg.guard(cfg.Contention))
	}
	mux.Handle("GET /{$}", http.RedirectHandler(RootPath+"/", http.StatusFound))
	return h, nil
}

// Close closes the dashboard's connections to Redis.
func (h *Handler) Close() error { return h.close() }
