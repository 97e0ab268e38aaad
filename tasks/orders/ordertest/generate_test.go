package ordertest_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/tasks/orders/ordertest"
)

// A file of any length has every trap, or the tests that read it would miss one. The same seed gives the same file.
func TestTraps(t *testing.T) {
	t.Parallel()
	expect.That(t, bytes.Equal(ordertest.Generate(1, ordertest.Lines), ordertest.Generate(1, ordertest.Lines)), "want the same file for the same seed")
	for _, lines := range []int{ordertest.LeastLines, ordertest.Lines} {
		rows := ordertest.Rows(t, ordertest.File(t, lines))
		expect.That(t, len(rows) == lines, "want %d lines, have %d", lines, len(rows))
		have, before := make(map[string]int), make(map[string]bool)
		for _, row := range rows {
			number, code, description, price, customer := row[0], row[1], row[2], row[5], row[6]
			quantity := expect.Value(strconv.Atoi(row[3]))(t)
			have[code]++
			all := strings.Join(row, "\x00")
			for trap, is := range map[string]bool{
				"cancellation": number[0] == 'C', "no customer": customer == "", "negative without a C": quantity < 0 && number[0] != 'C',
				"price 0": price == "0.0", "no description": description == "", "trailing blank": strings.HasSuffix(description, " "),
				"comma": strings.Contains(description, ","), "quote": strings.Contains(description, `"`),
				"not ASCII":     strings.ContainsFunc(description, func(r rune) bool { return r > 127 }),
				"two spellings": code != strings.ToUpper(code) && before[strings.ToUpper(code)], "twice": before[all], "code twice in an order": before[number+"\x00"+code],
			} {
				if is {
					have[trap]++
				}
			}
			before[code], before[all], before[number+"\x00"+code] = true, true, true
		}
		for _, trap := range []string{
			"cancellation", "no customer", "negative without a C", "price 0", "no description", "trailing blank", "comma", "quote", "not ASCII", "two spellings",
			"twice", "code twice in an order", "POST", "DOT", "M", "C2", "AMAZONFEE", "D", "DCGSSGIRL", "CRUK", "gift_0001_10",
		} {
			if have[trap] < 2 {
				t.Errorf("%d lines: %s: want it twice at least, have it %d times", lines, trap, have[trap])
			}
		}
	}
}
