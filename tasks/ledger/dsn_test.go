package ledger

import (
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
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
				expect.That(t, !strings.Contains(err.Error(), secret), "%q: want no password shown, have %v", rest, err)
				continue
			}
			expect.Is(t, "close", l.Close(), nil)
			expect.That(t, !strings.Contains(l.name, secret), "%q: want no password in the name, have %s", rest, l.name)
		}
	})
}
