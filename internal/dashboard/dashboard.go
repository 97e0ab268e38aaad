package dashboard

import (
	"context"
	"net/http"

	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/queue"
)

// RootPath is where the asynq dashboard's pages are.
const RootPath = "/dashboard"

// maxBody bounds what a request may send. The dashboard's largest requests
// list the ids of one page of tasks.
const maxBody = 1 << 20

// Config configures a [Handler].
type Config struct {
	// Redis is where the dashboard finds the queues. Nil serves the probes alone.
	Redis *redis.UniversalOptions
	// ReadOnly refuses whatever would change a queue or a task.
	ReadOnly bool
	// Username and Password are what the dashboard and its API ask for, by HTTP
	// Basic authentication. An empty Password asks for nothing, which is for
	// loopback addresses alone.
	Username, Password string
	// AnyHost accepts requests for every host name. Leave it false while the
	// address is a loopback one, see [Loopback], unless there is a Password:
	// a page of another site knows none.
	AnyHost bool
	// Ready says why the worker is not ready, nil when it is. It is called
	// for each request of /readyz, with a context that ends after 2 s, and must
	// be safe for concurrent use. A nil Ready is always ready. What it says, in
	// which there may be addresses, is told to those who give the Password;
	// without one to all, but with AnyHost to nobody.
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
	trusted := func(*http.Request) bool { return !cfg.AnyHost }
	guard := func(next http.Handler) http.Handler { return next }
	if cfg.Password != "" {
		l := newLogin(cfg.Username, cfg.Password)
		trusted, guard = l.given, l.guard
	}
	mux.HandleFunc("GET /healthz", alive)
	mux.Handle("GET /readyz", ready(cfg.Ready, trusted))
	h := &Handler{close: func() error { return nil }}
	if cfg.Redis != nil {
		mon := asynqmon.New(asynqmon.Options{
			RootPath:     RootPath,
			RedisConnOpt: connection{cfg.Redis},
			ReadOnly:     cfg.ReadOnly,
		})
		h.close = mon.Close
		offline, err := newPages(mon)
		if err != nil {
			return nil, err
		}
		mux.Handle(RootPath+"/", guard(offline))
		mux.Handle("GET /{$}", http.RedirectHandler(RootPath+"/", http.StatusFound))
	}
	h.Handler = protect(addressed(http.MaxBytesHandler(mux, maxBody)), cfg.AnyHost)
	return h, nil
}

// Close closes the dashboard's connections to Redis.
func (h *Handler) Close() error { return h.close() }

// connection hands our clients to asynqmon. asynq's own option types know
// neither ContextTimeoutEnabled nor all timeouts.
type connection struct{ opts *redis.UniversalOptions }

// MakeRedisClient implements asynq.RedisConnOpt.
func (c connection) MakeRedisClient() any { return queue.Redis(c.opts) }
