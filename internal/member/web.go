package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/sidingq/siding/inspect"
	"github.com/sidingq/siding/internal/config"
	"github.com/sidingq/siding/internal/dashboard"
)

// A web serves the dashboard and the probes.
type web struct {
	config config.HTTP
	pages  *dashboard.Handler
	server *http.Server // nil until started, or if there is no address
	addr   net.Addr
	served sync.WaitGroup
	broken chan error // gets the error of a server that ended by itself
}

// newWeb returns the web of a member. It is not started.
func newWeb(m *Member) (*web, error) {
	cfg, server := m.Config.HTTP, m.Server
	w := &web{config: cfg, broken: make(chan error, 1)}
	password := string(cfg.Password)
	pages := dashboard.Config{
		ReadOnly: cfg.ReadOnly,
		Username: cfg.Username,
		Password: password,
		// The host in a request may be that of a proxy. The password protects the dashboard then.
		AnyHost: password != "" || !dashboard.Loopback(cfg.Address),
		Ready:   m.ready,
		Inspect: inspect.Config{Prefix: server.Lock.Prefix, Resources: server.Resources, Crashes: server.Recovery.Crashes},
		Logger:  server.Logger,
	}
	if cfg.Dashboard {
		pages.Redis = m.Redis
	}
	if m.metrics != nil {
		inspector, err := inspect.New(m.client, pages.Inspect)
		if err != nil {
			return nil, err
		}
		m.metrics.Kinds(m.server.Kinds())
		m.metrics.Watch(inspector, server.Logger)
		pages.Metrics = m.metrics.Handler()
	}
	var err error
	w.pages, err = dashboard.New(pages)
	return w, err
}

// start listens and serves, if there is an address.
func (w *web) start(ctx context.Context, logger *slog.Logger) error {
	if w.config.Address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", w.config.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("http.address: %s is taken: choose another with --http, or --http off: %w", w.config.Address, err)
	}
	if err != nil {
		return fmt.Errorf("http.address: %w", err)
	}
	w.server, w.addr = dashboard.NewServer(w.pages, logger), listener.Addr()
	w.served.Go(func() {
		if err := w.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			w.broken <- fmt.Errorf("http: %w", err)
		}
	})
	return nil
}

// url returns the address of the dashboard, or of the probes if there is no dashboard, or "off".
func (w *web) url() string {
	switch {
	case w.server == nil:
		return "off"
	case w.config.Dashboard:
		return "http://" + w.addr.String() + dashboard.RootPath + "/"
	default:
		return "http://" + w.addr.String()
	}
}

// stop ends the server. A visitor has a second to finish.
func (w *web) stop(ctx context.Context) (err error) {
	if w.server != nil {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if w.server.Shutdown(ctx) != nil {
			err = w.server.Close()
		}
		w.served.Wait()
	}
	return errors.Join(err, w.pages.Close())
}
