package asynqdiff

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// A server is one of the subject's.
type server struct {
	running

	t      *testing.T
	wire   *wire
	dead   atomic.Bool // it has crashed, so nobody sees what it does
	once   sync.Once
	isDown chan struct{} // closed when it has shut down
}

// start starts a server, and waits until Inspector shows it and it can be told to cancel tasks.
func (r *rig) start() *server {
	r.t.Helper()
	s := &server{t: r.t, wire: &wire{addr: r.addr, db: r.db}, isDown: make(chan struct{})}
	c := r.config()
	r.listen(s, &c)
	handler := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		a := r.begin(ctx, s, t)
		defer a.leave()
		steps := r.task(t.Type()).does
		if a.n > len(steps) { // does is nil, or this is an attempt too many, which the record shows
			return nil
		}
		return steps[a.n-1](ctx, a)
	})
	before := r.listed()
	s.running = r.on.start(r.t, s.wire, c, handler)
	r.servers = append(r.servers, s)
	r.until("the server to be listed", func() bool {
		return slices.ContainsFunc(r.listed(), func(s *asynq.ServerInfo) bool {
			return !slices.ContainsFunc(before, func(old *asynq.ServerInfo) bool { return old.ID == s.ID })
		})
	})
	r.until("the server to listen to cancellations", func() bool { return r.listeners() >= r.alive() })
	return s
}

// listed returns the servers that Inspector shows.
func (r *rig) listed() []*asynq.ServerInfo {
	r.t.Helper()
	servers, err := r.inspect.Servers()
	if err != nil {
		r.t.Fatal(err)
	}
	return servers
}

// down begins to shut a server down, once.
func (s *server) down() {
	s.once.Do(func() {
		go func() {
			defer close(s.isDown)
			s.Shutdown()
		}()
	})
}

// shutdown shuts a server down.
func (s *server) shutdown() {
	s.down()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case <-s.isDown:
	case <-timer.C:
		s.t.Errorf("want the end of a shutdown within a minute")
	}
}

// crash cuts a server off. What it and its handlers do from now on is not recorded, and does not matter.
func (s *server) crash() {
	s.dead.Store(true)
	s.wire.cut()
	s.down()
}

func (r *rig) crashed() bool {
	return slices.ContainsFunc(r.servers, func(s *server) bool { return s.dead.Load() })
}

// alive counts the servers that run.
func (r *rig) alive() int {
	n := 0
	for _, s := range r.servers {
		select {
		case <-s.isDown:
		default:
			if !s.dead.Load() {
				n++
			}
		}
	}
	return n
}

// listeners counts the connections of this database that have subscribed to something.
func (r *rig) listeners() int {
	r.t.Helper()
	clients, err := r.redis.ClientList(r.t.Context()).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for client := range strings.Lines(clients) {
		if strings.Contains(client, fmt.Sprintf(" db=%d ", r.db)) && !strings.Contains(client, " sub=0 ") {
			n++
		}
	}
	return n
}
