package ledger

import (
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
)

func TestNamesOfServers(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://ann@db/shop": "postgres://ann@db/shop",
		"postgresql://ann:p@ss,w@db.example:5432/shop?application_name=a:b": "postgresql://ann@db.example:5432/shop",
		"postgres://ann:7%2Fx@a:5432,b,c:1/shop%40home?sslmode=disable":     "postgres://ann@a:5432,b,c:1/shop@home",
		"postgres://[::1]:5432/shop":                                        "postgres://@[::1]:5432/shop",
		"postgres:///shop?host=/run/pg&user=ann":                            "postgres://@/shop",
	} {
		l := expect.Value(Open(dsn))(t)
		expect.OK(t, l.Close())
		expect.Equal(t, dsn, l.name, want)
	}
}

// No name of a ledger and no error shows a password, wherever in a DSN it ends. What stands between
// a colon and an @ is one, however the DSN begins.
func FuzzParseDSN(f *testing.F) {
	const secret = "hunter2"
	for _, rest := range []string{"@db/x", "", "/x", "%zz@db", ":5432/x", "#@db", "?password=@", "\n@db", "@[::1", "+", "%61+%20", ",:"} {
		f.Add("postgres://me:", rest)
	}
	for _, start := range []string{
		"postgres:/ann:", "postgres:///ann:", "postgres//ann:", "//ann:", "shop_app:", "\"postgres://ann:", "POSTGRES://ann:", "postgres://shop:7/x9", "postgres://shop:7/", "postgres://shop:7?",
		"postgres://ann:x@db/", "postgres://db/x?password=7#",
	} {
		f.Add(start, "db.example/shop")
		f.Add(start, "db")
	}
	f.Fuzz(func(t *testing.T, start, rest string) {
		if strings.Contains(start, secret) || strings.Contains(rest, secret) {
			return
		}
		dsns := []string{"postgres://me:" + secret + rest, "postgres://me@db/x?password=" + secret + rest, "postgresql://me@db/x?a=b&sslpassword=" + secret + rest}
		_, behind, url := strings.Cut(start, "://")
		if file := strings.HasPrefix(strings.ToLower(start), "sqlite:"); !file && (strings.Contains(behind, ":") || !url && strings.Contains(start, ":")) {
			dsns = append(dsns, start+secret+"@"+rest)
		}
		for _, dsn := range dsns {
			l, err := Open(dsn)
			if err != nil {
				expect.That(t, !strings.Contains(err.Error(), secret), "%q: want no password shown, have %v", dsn, err)
				continue
			}
			expect.Is(t, "close", l.Close(), nil)
			expect.That(t, !strings.Contains(l.name, secret), "%q: want no password in the name, have %s", dsn, l.name)
		}
	})
}
