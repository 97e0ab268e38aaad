package cli

import (
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// AddVersion gives the program the flag --version. It prints which release the program is, the commit
// that it was built from, and the release of Go.
func AddVersion(root *cobra.Command) {
	root.Version = Version()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
}

// Version is what --version prints behind the name of the program.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(info)
}

// ofCommit matches the version that Go makes of a commit that has no tag: v0.1.1-0.20261124050140-482442d78286
// after v0.1.0.
var ofCommit = regexp.MustCompile(`[-.]\d{14}-[0-9a-f]{12}(\+|$)`)

// versionOf returns the text for a build; nil for one of which nothing is known.
func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return "unknown"
	}
	release, commit, changed, main := "unreleased", "commit not known", "", &info.Main
	if main.Replace != nil { // by a folder, which has no version
		main = main.Replace
	}
	if v := main.Version; strings.HasPrefix(v, "v") && !ofCommit.MatchString(v) {
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
