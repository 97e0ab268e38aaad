package queue

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds the names of queues and ids of tasks, in bytes.
const maxName = 256

// notInNames are the characters that no name of a queue and no id of a task has. Braces would
// end the hash tag of a Redis Cluster. The others change what a URL means in which the name
// stands, such as that of a button of the dashboard.
const notInNames = `{}/?#%\`

// badName reports whether a queue or a task must not have this name. The URL of a name comes
// through a browser unchanged, but for characters that the browser encodes: it would also
// fold . and .. and cut blanks at an end.
func badName(name string, most int) bool {
	return name == "" || len(name) > most || name == "." || name == ".." || strings.TrimSpace(name) != name ||
		!utf8.ValidString(name) || strings.ContainsAny(name, notInNames) || strings.ContainsFunc(name, unicode.IsControl)
}

// wantName says which names of at most so many bytes are accepted.
func wantName(most int) string {
	return fmt.Sprintf("1 to %d bytes of UTF-8 without control characters, blanks at an end and %s, other than . and ..", most, notInNames)
}
