package dashboard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/hibiken/asynqmon"
	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/lockpage"
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
	// Inspect says what the Locks pages have to know of the servers.
	Inspect inspect.Config
	// Logger is told of each lock that somebody releases on the Locks pages. Defaults to slog.Default().
	Logger *slog.Logger
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
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
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
	rdb := queue.Redis(cfg.Redis)
	var locks *lockpage.Handler
	offline, err := newPages(mon)
	if err == nil {
		locks, err = cfg.locks(rdb)
	}
	if err != nil {
		return nil, errors.Join(err, mon.Close(), rdb.Close())
	}
	h.close = func() error { return errors.Join(mon.Close(), rdb.Close()) }
	for path, pages := range map[string]http.Handler{RootPath + "/": offline, lockpage.RootPath: locks, lockpage.RootPath + "/": locks} {
		mux.Handle(path, cfg.guard(pages))
	}
	mux.Handle("GET /{$}", http.RedirectHandler(RootPath+"/", http.StatusFound))
	return h, nil
}

// locks returns the Locks pages.
func (cfg Config) locks(rdb redis.UniversalClient) (*lockpage.Handler, error) {
	inspector, err := inspect.New(rdb, cfg.Inspect)
	if err != nil {
		return nil, err
	}
	revoke := func(ctx context.Context, resource string, fence int64, by, reason string) error {
		revoked, err := queue.Revoke(ctx, rdb, queue.Revocation{Resource: resource, Prefix: cfg.Inspect.Prefix, Fence: fence, By: by, Reason: reason})
		if err == nil {
			cfg.Logger.WarnContext(ctx, "an operator has released a lock", "resource", resource, "holder", revoked.Holder, "by", by, "reason", reason)
		}
		return err
	}
	return lockpage.New(lockpage.Config{
		Source: inspector, Revoke: revoke, ReadOnly: cfg.ReadOnly, By: cfg.by, Dashboard: RootPath,
	}), nil
}

// Close closes the dashboard's connections to Redis.
func (h *Handler) Close() error { return h.close() }
