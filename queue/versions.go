package queue

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// versions names the versions of Siding, asynq and Go that the program is built with, for the entry of a server.
func versions() string {
	siding, asynq := "not known", "not known"
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append([]*debug.Module{&build.Main}, build.Deps...) {
			version := m.Version
			if m.Replace != nil { // by a folder, whose path is no module's, or by another version
				version = cmp.Or(m.Replace.Version, version)
			}
			switch m.Path {
			case "github.com/sidingq/siding":
				siding = cmp.Or(version, "(devel)")
			case "github.com/hibiken/asynq":
				asynq = version
			}
		}
	}
	return fmt.Sprintf("siding %s, asynq %s, %s", siding, asynq, runtime.Version())
}
