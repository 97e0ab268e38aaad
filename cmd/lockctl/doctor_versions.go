package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/sidingq/siding/internal/cli"
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

// A version is what runs at one place.
type version struct {
	Of      string `json:"of"`
	Version string `json:"version,omitempty"` // empty if it is not known
	Note    string `json:"note,omitempty"`
}

// versions lists what runs, side by side.
func (x *examination) versions() []version {
	asynq := version{Of: "asynq", Note: "that this release knows; servers need the same"}
	if build, found := debug.ReadBuildInfo(); found {
		for _, dep := range build.Deps {
			if dep.Path == "github.com/hibiken/asynq" {
				asynq.Version = dep.Version
			}
		}
	}
	all := []version{{Of: "lockctl", Version: cli.Version()}, asynq}
	for _, n := range x.nodes {
		all = append(all, version{Of: "redis " + n.name, Version: n.version})
	}
	for _, s := range x.servers {
		v := version{Of: "server " + s.Label(), Version: s.Versions}
		if s.Versions == "" {
			v.Note = "a server that takes no locks does not tell"
		}
		all = append(all, v)
	}
	return all
}

func versionTable(versions []version) *table {
	t := newTable(cut("OF"), left("VERSION"), left("NOTE"))
	for _, v := range versions {
		t.add(v.Of, cmp.Or(v.Version, "not known"), v.Note)
	}
	return t
}
