package tasks_test

import (
	"math"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/tasks"
)

func TestMoney(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want tasks.Money
		text string // as String writes it
	}{
		{"2.55", 25500, "2.55"},
		{"2.1", 21000, "2.10"},
		{"0", 0, "0.00"},
		{"-0", 0, "0.00"},
		{"007", 70000, "7.00"},
		{"+3", 30000, "3.00"},
		{"0.001", 10, "0.001"},
		{"0.0001", 1, "0.0001"},
		{"-0.0001", -1, "-0.0001"},
		{"17836.46", 178364600, "17836.46"},
		{"-11062.06", -110620600, "-11062.06"},
		{"922337203685477.5807", math.MaxInt64, "922337203685477.5807"},
		{"-922337203685477.5808", math.MinInt64, "-922337203685477.5808"},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			t.Parallel()
			have, err := tasks.ParseMoney(test.in)
			expect.That(t, err == nil && have == test.want, "ParseMoney(%q): want %d, have %d, %v", test.in, test.want, have, err)
			expect.That(t, have.String() == test.text, "String: want %q, have %q", test.text, have.String())
		})
	}
}

func TestMoneyRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]string{ // to a part of the error
		"":                       "want a decimal such as 2.55",
		"-":                      "want a decimal",
		".":                      "want a decimal",
		".5":                     "want a decimal",
		"5.":                     "want a decimal",
		"1,5":                    "want a decimal",
		"1.5.5":                  "want a decimal",
		"--1":                    "want a decimal",
		"+-1":                    "want a decimal",
		" 1":                     "want a decimal",
		"1e3":                    "want a decimal",
		"0x10":                   "want a decimal",
		"1_000":                  "want a decimal",
		"NaN":                    "want a decimal",
		"٣":                      "want a decimal", // a digit, but not one of ours
		"0.00001":                "want at most 4 decimals",
		"2.10000":                "want at most 4 decimals",
		"922337203685477.5808":   "want -922337203685477.5808 to 922337203685477.5807",
		"-922337203685477.5809":  "want -922337203685477.5808 to",
		strings.Repeat("9", 1e4): "want -922337203685477.5808 to 922337203685477.5807",
	}
	for in, want := range tests {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			have, err := tasks.ParseMoney(in)
			expect.That(t, err != nil && strings.Contains(err.Error(), want), "ParseMoney(%q): want an error with %q, have %d, %v", in, want, have, err)
		})
	}
}

func FuzzParseMoney(f *testing.F) {
	for _, seed := range []string{"2.55", "-0.0001", "1e3", "922337203685477.5808", "00.10", "+1", "1."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := tasks.ParseMoney(s)
		if err != nil {
			return
		}
		back, err := tasks.ParseMoney(m.String())
		expect.That(t, err == nil && back == m, "%q is %d, written %q, read back as %d, %v", s, m, m.String(), back, err)
	})
}
