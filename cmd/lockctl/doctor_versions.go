package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// releases checks that all guarded servers run the same Siding and the same asynq.
func (x *examination) releases(context.Context) error {
	servers := make(map[string][]string)       // by what they run
	queues := make(map[string]map[string]bool) // by their names: what their servers run
	for _, s := range x.servers {
		if !s.Guarded {
			continue // it does not tell
		}
		release := releaseOf(s.Versions)
		servers[release] = append(servers[release], s.Label())
		for _, q := range s.Queues {
			if queues[q] == nil {
				queues[q] = make(map[string]bool)
			}
			queues[q][release] = true
		}
	}
	if len(servers) > 1 {
		var all, shared []string
		for _, release := range slices.Sorted(maps.Keys(servers)) {
			all = append(all, fmt.Sprintf("%s on %s", release, some(servers[release])))
		}
		for _, q := range slices.Sorted(maps.Keys(queues)) {
			if len(queues[q]) > 1 {
				shared = append(shared, q)
			}
		}
		found := "the servers run different versions: " + strings.Join(all, "; ")
		if len(shared) > 0 {
			found += "; they share " + some(shared)
		}
		x.add(warning, "versions", found, "they work on the same locks, each by its own version: what one mends may still go wrong on another",
			"finish the upgrade: restart the servers of the older version")
	}
	for release := range servers {
		x.unless("versions", "every guarded server runs "+release)
	}
	return nil
}

// releaseOf is what versions say of Siding and asynq. Go does not matter.
func releaseOf(versions string) string {
	release, _, _ := strings.Cut(versions, ", go")
	return cmp.Or(release, "an older Siding")
}
