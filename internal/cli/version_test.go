package cli

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for want, info := range map[string]*debug.BuildInfo{
		"unknown": nil,
		"unreleased (commit not known, Go 1.26.1)":                      {GoVersion: "go1.26.1", Main: debug.Module{Version: "v0.0.0-20261124050140-482442d78286"}},
		"unreleased (commit 1a2b3c4d5e6f, Go 1.26.1)":                   {GoVersion: "go1.26.1", Main: debug.Module{Version: "v0.1.1-0.20261124050140-482442d78286"}, Settings: []debug.BuildSetting{setting("vcs.revision", "1a2b3c4d5e6f")}},
		"unreleased (commit 1a2b3c4d5e6f, with changes, Go 1.26.1)":     {GoVersion: "go1.26.1", Main: debug.Module{Version: "v0.2.0-rc.1.0.20261124050140-482442d78286+dirty"}, Settings: []debug.BuildSetting{setting("vcs.revision", "1a2b3c4d5e6f"), setting("vcs.modified", "true")}},
		"v0.2.0-rc.1 (commit not known, Go 1.26.1)":                     {GoVersion: "go1.26.1", Main: debug.Module{Version: "v0.2.0-rc.1"}},
		"v0.1.0 (commit 1a2b3c4d5e6f, Go 1.26.1)":                       {GoVersion: "go1.26.1", Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{setting("vcs.revision", "1a2b3c4d5e6f"), setting("vcs.modified", "false")}},
		"unreleased (commit not known, Go 1.26.2)":                      {GoVersion: "go1.26.2", Main: debug.Module{Version: "v0.0.0", Replace: &debug.Module{Path: "../siding", Version: "(devel)"}}},
		"unreleased (commit 1a2b3c4d5e6f, with changes, devel Go 1.27)": {GoVersion: "devel go1.27", Settings: []debug.BuildSetting{setting("vcs.revision", "1a2b3c4d5e6f"), setting("vcs.modified", "true")}},
	} {
		if have := versionOf(info); have != want {
			t.Errorf("want %q, have %q", want, have)
		}
	}
}
