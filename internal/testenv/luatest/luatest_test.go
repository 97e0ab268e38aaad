package luatest

import (
	"slices"
	"testing"
)

func TestHeaderFaults(t *testing.T) {
	t.Parallel()
	for source, want := range map[string][]string{
		"-- A\n-- KEYS[1] k\n-- ARGV[1] a\n-- Returns 1.\n-- Guarantee: none.\nreturn KEYS[1] .. ARGV[1]":                             nil,
		"-- A\n-- KEYS[1] k\n-- ARGV[1] a\n-- ARGV[2...] b\n-- Returns 1.\n-- Guarantee: none.\nf(KEYS[1], ARGV[1], unpack(ARGV, 2))": nil,
		"-- A\n-- KEYS[1] k\n-- ARGV[1] a\n-- ARGV[2...] b\n-- Returns 1.\n-- Guarantee: none.\nf(KEYS[1], ARGV[1])":                  {"does not use ARGV[2...]"},
		"-- A\n-- KEYS[1] k\n-- Returns 1.\n-- Guarantee: none.\nf(KEYS[1], KEYS[2])":                                                 {"does not name KEYS[2]"},
		"-- A\n-- KEYS[1] k\n-- Returns 1.\n-- Guarantee: none.\nf() -- KEYS[1]":                                                      {"does not use KEYS[1]"},
		"return 1": {"says nothing of KEYS", "says nothing of Returns", "says nothing of Guarantee"},
	} {
		if have := faults(source); !slices.Equal(have, want) {
			t.Errorf("%q: want %q, have %q", source, want, have)
		}
	}
}
