package cli

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// AddVersion gives the program the flag --version. It prints which release the program is, the commit
// that it was built from, and the release of Go.
func AddVersion(root *cobra.Command) {
	info, _ := debug.ReadBuildInfo()
	root.Version = versionOf(info)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
}

// versionOf returns the text for a build; nil for one of which nothing is known.
func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return "unknown"
	}
	release, commit, changed := "unreleased", "commit not known", ""
	if v := info.Main.Version; strings.HasPrefix(v, "v") && !strings.HasPrefix(v, "v0.0.0-") { // which Go makes of a commit
		release = v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = "commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", with changes"
		}
	}
	return fmt.Sprintf("%s (%s%s, %s)", release, commit, changed, strings.Replace(info.GoVersion, "go", "Go ", 1))
}
