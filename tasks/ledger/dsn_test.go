package ledger

import (
	"strings"
	"testing"
)

// No name of a ledger and no error shows a password, wherever in a DSN it ends.
func FuzzParseDSN(f *testing.F) {
	const secret = "hunter2"
	for _, seed := range []string{"@db/x", "", "/x", "%zz@db", ":5432/x", "#@db", "?password=@", "\n@db", "@[::1", "+", "%61+%20", ",:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rest string) {
		if strings.Contains(rest, secret) {
			return
		}
		for _, head := range []string{"postgres://me:", "postgres://me@db/x?password=", "postgresql://me@db/x?a=b&sslpassword="} {
			l, err := newLedger(head + secret + rest)
			if err != nil {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q: want no password shown, have %v", rest, err)
				}
				continue
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if strings.Contains(l.name, secret) {
				t.Errorf("%q: want no password in the name, have %s", rest, l.name)
			}
		}
	})
}
