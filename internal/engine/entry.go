package engine

import (
	"context"
	"time"

	"github.com/sidingq/siding/internal/sleep"
	"github.com/sidingq/siding/internal/taskredis"
)

// asynq's servers write their entries as often, and for so long.
const (
	entryEvery = 5 * time.Second
	entryTTL   = 10 * time.Second
)

// showEntry writes the entry of the server until ctx ends, and then deletes it: what asynq's dashboard shows of the server and of
// the tasks that it runs.
func (s *Server) showEntry(ctx context.Context, own *taskredis.ServerInfo) {
	writing := outage{logger: s.cfg.Logger, fails: "the dashboard does not show this server, as its entry cannot be written"}
	for {
		writing.saw(ctx, s.writeEntry(ctx, *own))
		if sleep.For(ctx, entryEvery) != nil {
			break
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = taskredis.ClearServer(last, s.cfg.Redis, own) // else it expires
}

// writeEntry writes the entry as it is just now.
func (s *Server) writeEntry(ctx context.Context, entry taskredis.ServerInfo) error {
	var workers []taskredis.WorkerInfo
	err := s.loop.do(ctx, func() {
		switch {
		case s.loop.closing:
			entry.Status = "closed"
		case s.loop.stopping:
			entry.Status = "stopped"
		default:
			entry.Status = "active"
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
	if err != nil {
		return err
	}
	entry.Active = len(workers)
	return taskredis.WriteServer(ctx, s.cfg.Redis, &entry, workers, entryTTL)
}
