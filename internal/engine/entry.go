package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/taskredis"
)

// An entry is what asynq's dashboard shows of a server and of the tasks that it runs.
type entry struct {
	redis  redis.UniversalClient
	info   taskredis.ServerInfo
	state  func(ctx context.Context) (workers []taskredis.WorkerInfo, status string, err error)
	logger *slog.Logger
}

// asynq's servers write their entries as often, and for so long.
const (
	entryEvery = 5 * time.Second
	entryTTL   = 10 * time.Second
)

// run writes the entry until ctx ends, and then deletes it.
func (e *entry) run(ctx context.Context) {
	writing := outage{logger: e.logger, fails: "the dashboard does not show this server, as its entry cannot be written"}
	for {
		writing.saw(ctx, e.write(ctx))
		if sleep.For(ctx, entryEvery) != nil {
			break
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = taskredis.ClearServer(last, e.redis, &e.info) // else it expires
}

func (e *entry) write(ctx context.Context) error {
	workers, status, err := e.state(ctx)
	if err != nil {
		return err
	}
	info := e.info
	info.Status, info.Active = status, len(workers)
	return taskredis.WriteServer(ctx, e.redis, &info, workers, entryTTL)
}

// entryState returns what the entry of the server says just now.
func (s *Server) entryState(ctx context.Context) (workers []taskredis.WorkerInfo, status string, err error) {
	err = s.loop.do(ctx, func() {
		switch {
		case s.loop.closing:
			status = "closed"
		case s.loop.stopping:
			status = "stopped"
		default:
			status = "active"
		}
		for _, a := range s.loop.attempts {
			if a.ended.IsZero() {
				m := a.message
				workers = append(workers, taskredis.WorkerInfo{
					ID: m.ID, Type: m.Type, Payload: m.Payload, Queue: m.Queue, Started: a.started, Deadline: a.endsBy,
				})
			}
		}
	})
	return workers, status, err
}
