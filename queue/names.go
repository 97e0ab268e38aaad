package queue

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds the names of queues and ids of tasks, in bytes.
const maxName = 256

// notInNames are the characters that no name of a queue and no id of a task may have. Braces would
// end the hash tag of a Redis Cluster. The others have a meaning in URLs, such as those of the
// dashboard.
const notInNames = `{}/?#%\`

// badName reports whether a queue or a task must not have this name. A browser would change the URL
// of such a name: it folds . and .. and cuts blanks at an end.
func badName(name string, most int) bool {
	return name == "" || len(name) > most || name == "." || name == ".." || strings.TrimSpace(name) != name ||
		!utf8.ValidString(name) || strings.ContainsAny(name, notInNames) || strings.ContainsFunc(name, unicode.IsControl)
}

// wantName describes the names of at most so many bytes that are accepted.
func wantName(most int) string {
	return fmt.Sprintf("1 to %d bytes of UTF-8 without control characters, blanks at an end and %s, other than . and ..", most, notInNames)
}
