package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sidingq/siding/internal/taskredis"
)

// An OtherLocksError says that a live server of one of the queues keeps its locks elsewhere, so that tasks of one resource could
// run at once.
type OtherLocksError struct{ text string }

func (e *OtherLocksError) Error() string { return e.text }

// agree writes the entry of this server, which has found none with other locks, and looks once more: of two servers that start at the
// same moment at least one sees the other now. A server that those at work refuse again and again writes nothing, so it keeps none of
// theirs from starting.
func (s *Server) agree(ctx context.Context, own *taskredis.ServerInfo) error {
	entry := *own
	entry.Status = "active"
	_ = taskredis.WriteServer(ctx, s.cfg.Redis, &entry, nil, entryTTL) // tried again, and an error logged, once the server runs
	differs, err := s.compare(ctx, own)
	if err != nil {
		_ = taskredis.ClearServer(ctx, s.cfg.Redis, own) // else it expires
		return err
	}
	if len(differs) > 0 {
		s.cfg.Logger.WarnContext(ctx, "a server of the same queues has other settings, and runs their tasks by those", differs...)
	}
	return nil
}

// compare compares the protocol and the terms of this server with those of the live ones on its queues: two of other protocols would
// not see each other's waiting tasks. It returns attributes for the log that say in what the first of them differs that does.
func (s *Server) compare(ctx context.Context, own *taskredis.ServerInfo) (attrs []any, _ error) {
	servers, err := taskredis.Servers(ctx, s.cfg.Redis)
	if err != nil {
		return nil, startFailed(err)
	}
	for _, other := range servers {
		var differs []string
		if other.ID == own.ID {
			continue
		}
		shares := func(queue string) bool { _, ok := other.Queues[queue]; return ok }
		if other.Guarded && other.Protocol != taskredis.Protocol && slices.ContainsFunc(slices.Collect(maps.Keys(own.Queues)), shares) {
			return nil, fmt.Errorf("engine: start: %v, of another release, serves the same queues, and the two would not keep to one order: "+
				"stop all servers of that release first (one that was killed is listed for 10 s more)", other)
		}
		for _, d := range taskredis.Disagreements([]*taskredis.ServerInfo{own, other}) {
			mine, theirs := d.Of(own), d.Of(other)
			if d.Locks && !s.cfg.AllowOtherLocks {
				return nil, &OtherLocksError{fmt.Sprintf("%v, which serves %s as well, has the %s %s, and %v, which is to start, has %s",
					other, strings.Join(d.Queues, ", "), d.Setting, theirs, own, mine)}
			}
			differs = append(differs, fmt.Sprintf("%s: %s here, %s there", d.Setting, mine, theirs))
		}
		if len(differs) > 0 && attrs == nil {
			attrs = append(attrsOf(other), "differs", differs)
		}
	}
	return attrs, nil
}

func attrsOf(s *taskredis.ServerInfo) []any {
	return []any{"host", s.Host, "pid", s.PID, "server_id", s.ID, "queues", slices.Sorted(maps.Keys(s.Queues))}
}
