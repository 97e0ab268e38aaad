package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sidingq/siding/internal/taskredis"
)

// agreed checks that the servers of each queue have the same locks and rules, and that lockctl looks for these locks.
func (x *examination) agreed(ctx context.Context) error {
	const name = "settings of servers"
	servers, err := x.published(ctx)
	if err != nil {
		return err
	}
	for _, d := range taskredis.Disagreements(servers) {
		var all []string
		for _, v := range d.Values {
			var names []string
			for _, s := range v.Servers {
				names = append(names, s.String())
			}
			all = append(all, fmt.Sprintf("%s on %s", v.Value, some(names)))
		}
		how, means := warning, "what becomes of a task depends on the server that takes it"
		if d.Locks {
			how, means = faulty, "these servers do not see each other's locks: tasks of one resource run at once"
		}
		x.add(how, name, fmt.Sprintf("%s differs among the servers of %s: %s", d.Setting, some(d.Queues), strings.Join(all, "; ")), means,
			"give all servers of these queues the same setting, and restart those that have another")
	}
	own := strconv.Quote(x.settings.Queue.Lock.Prefix)
	for _, s := range servers {
		if s.Terms != nil && s.Terms.Prefix != own {
			x.add(warning, name, fmt.Sprintf("lock.prefix is %s on %v, and %s here", s.Terms.Prefix, s, own),
				"lockctl does not see the locks of that server, so what it says below of its tasks may be wrong",
				"run lockctl with the settings of that server, or --lock-prefix")
			break
		}
	}
	x.unless(name, "the servers of each queue have the same locks, limits and policies")
	return nil
}
