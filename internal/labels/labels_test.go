package labels_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sidingq/siding/internal/asynqredis"
	"github.com/sidingq/siding/internal/labels"
	"github.com/sidingq/siding/internal/store"
)

func TestClass(t *testing.T) {
	t.Parallel()
	for resource, want := range map[string]string{
		"order:536365":                         "order",
		"sku:85123A:warehouse:7":               "sku",
		"536365":                               labels.Other,
		":536365":                              labels.Other,
		"":                                     labels.Other,
		"Kunde:Müller":                         "Kunde",
		strings.Repeat("x", 64) + ":1":         strings.Repeat("x", 64),
		strings.Repeat("x", 65) + ":1":         labels.Other,
		"https://shop.example/orders?id=53636": "https",
	} {
		if have := labels.Class(resource); have != want {
			t.Errorf("%s: want %s, have %s", resource, want, have)
		}
	}
}

func TestHolder(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		asynqredis.Holder("order:audit", "7f4a", "web-3 (pid 4121)"):        "order:audit",
		asynqredis.Holder("v2:audit", "on on", "web-3 (pid 4121)"):          "v2:audit",
		asynqredis.Holder("v2:audit", "7", "unknown host (pid 4121)"):       "v2:audit",
		asynqredis.Holder(strings.Repeat("x", 65), "7", "web-3 (pid 4121)"): labels.Other,
		"web-3 (pid 4121)":                   "a program",
		"buildhost (pid 4121)":               "a program",
		"recovery on web-3 (pid 4121)":       "recovery",
		"another program":                    "another program",
		store.NextHolder:                     "the next in the wait queue",
		"nobody yet, as several asked":       "nobody",
		"migration":                          "migration",
		"migration of order 536365, by hand": "migration of order",
		"invoices of 2026-11":                "invoices of",
		"jane@shop.example":                  "a program",
		"order:536365 is mine":               "a program",
		"  two  spaces ":                     "two  spaces",
		" on  (pid )":                        "a program",
		"(pid 7)":                            "a program",
		"":                                   "a program",
		strings.Repeat("x", 200):             labels.Other,
	} {
		if have := labels.Holder(label); have != want {
			t.Errorf("%s: want %s, have %q", label, want, have)
		}
	}
}

// FuzzHolder wants a short word, and no digit of a holder that is no task.
func FuzzHolder(f *testing.F) {
	f.Add("order:audit 7f4a on web-3 (pid 4121)")
	f.Add("migration of order 536365")
	f.Fuzz(func(t *testing.T, label string) {
		have := labels.Holder(label)
		if have == "" || len(have) > 64 {
			t.Errorf("%q: have %q", label, have)
		}
		if !strings.HasSuffix(label, ")") && strings.ContainsAny(have, "0123456789") {
			t.Errorf("%q: want no digit, have %q", label, have)
		}
	})
}

// However many words come, few have a value, each of them one.
func TestSetIsBounded(t *testing.T) {
	t.Parallel()
	created := make(map[string]int)
	s := labels.NewSet(func(word string) *string {
		created[word]++ // under the lock of the set
		return &word
	})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 10_000 {
				word := "w" + strconv.Itoa(i)
				if have := *s.Of(word); have != word && have != labels.Other {
					t.Errorf("%s: have %s", word, have)
				}
			}
		})
	}
	all.Wait()
	if len(created) != labels.Limit+1 {
		t.Errorf("want %d values, have %d", labels.Limit+1, len(created))
	}
	for word, n := range created {
		if n != 1 {
			t.Errorf("%s: want one value, have %d", word, n)
		}
	}
	for _, word := range []string{"later", labels.Other, ""} {
		if have := *s.Of(word); have != labels.Other {
			t.Errorf("%q: want %s, have %s", word, labels.Other, have)
		}
	}
}

// A word is UTF-8 and short, whatever a client calls its tasks.
func TestSetOfBadWords(t *testing.T) {
	t.Parallel()
	s := labels.NewSet(func(word string) string { return word })
	for word, want := range map[string]string{"a\xffb": "a?b", strings.Repeat("x", 65): labels.Other, "": labels.Other} {
		if have := s.Of(word); have != want {
			t.Errorf("%q: want %q, have %q", word, want, have)
		}
	}
}
