package ordertest_test

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sidingq/siding/tasks/orders/ordertest"
)

func TestSameSeedSameFile(t *testing.T) {
	t.Parallel()
	first := ordertest.Generate(1, ordertest.Lines)
	if !bytes.Equal(first, ordertest.Generate(1, ordertest.Lines)) {
		t.Error("want the same file for the same seed")
	}
	if bytes.Equal(first, ordertest.Generate(2, ordertest.Lines)) {
		t.Error("want another file for another seed")
	}
}

// A file of any length has every trap. A long one has the skew of the public data set, whose values
// are in the comments.
func TestTrapsAndSkew(t *testing.T) {
	t.Parallel()
	for _, lines := range []int{ordertest.LeastLines, ordertest.Lines} {
		t.Run(strconv.Itoa(lines), func(t *testing.T) {
			t.Parallel()
			have := measure(t, ordertest.Rows(t, ordertest.File(t, lines)))
			if have["lines"] != float64(lines) {
				t.Errorf("want %d lines, have %g", lines, have["lines"])
			}
			for _, trap := range []string{
				"cancellations", "orders without a customer", "negative without a C", "price 0", "no description", "lower case",
				"pairs of codes", "POST", "DOT", "M", "C2", "AMAZONFEE", "D", "DCGSSGIRL", "CRUK", "gift_0001_10", "not ASCII",
				"equal to another", "code again in the order", "trailing blank", "comma", "quote", "negative net units",
				"orders of 1 line", "orders of 2 to 10 lines", "orders of 11 to 50 lines", "orders of more than 50 lines",
			} {
				if have[trap] < 2 {
					t.Errorf("%s: want at least 2, have %g", trap, have[trap])
				}
			}
			if lines < ordertest.Lines {
				return
			}
			for figure, within := range map[string][2]float64{
				"lines of the hottest 10 % of codes":              {0.3, 0.5},  // 0.37
				"orders of the busiest 10 % of customers":         {0.2, 0.6},  // 0.29
				"lines of the longest order":                      {0.02, 0.2}, // 0.03
				"lines without a customer":                        {0.05, 0.5}, // 0.39
				"orders in pieces, of two times or two customers": {0, 0},
			} {
				if have[figure] < within[0] || have[figure] > within[1] {
					t.Errorf("%s: want %v, have %g", figure, within, have[figure])
				}
			}
		})
	}
}

// measure returns the figures of a file.
func measure(t *testing.T, rows [][]string) map[string]float64 {
	t.Helper()
	have := make(map[string]float64)
	count := func(name string, when bool) {
		if when {
			have[name]++
		}
	}
	type order struct {
		customer, time string
		lines          float64
		codes          map[string]bool
	}
	orders, codes, customers := map[string]*order{}, map[string]float64{}, map[string]float64{}
	spellings, net, seen := map[string]map[string]bool{}, map[string]int{}, map[string]bool{}
	last := ""
	for _, row := range rows {
		number, code, description, at, price, customer := row[0], row[1], row[2], row[4], row[5], row[6]
		quantity, err := strconv.Atoi(row[3])
		if err != nil {
			t.Fatal(err)
		}
		o := orders[number]
		if o == nil {
			o = &order{customer: customer, time: at, codes: make(map[string]bool)}
			orders[number] = o
			count("cancellations", number[0] == 'C')
			count("orders without a customer", customer == "")
			customers[customer]++
		} else {
			count("orders in pieces, of two times or two customers", number != last || at != o.time || customer != o.customer)
		}
		last = number
		all := strings.Join(row, "\x00")
		count("lines", true)
		count("lines without a customer", customer == "")
		count("negative without a C", quantity < 0 && number[0] != 'C')
		count("price 0", price == "0.0")
		count("no description", description == "")
		count("trailing blank", strings.HasSuffix(description, " "))
		count("comma", strings.Contains(description, ","))
		count("quote", strings.Contains(description, `"`))
		count("not ASCII", strings.ContainsFunc(description, func(r rune) bool { return r > 127 }))
		count("lower case", code != strings.ToUpper(code))
		count(code, code[0] > '9')
		count("code again in the order", o.codes[code])
		count("equal to another", seen[all])
		fold := strings.ToUpper(code)
		if spellings[fold] == nil {
			spellings[fold] = make(map[string]bool)
		}
		seen[all], o.codes[code], spellings[fold][code] = true, true, true
		o.lines++
		codes[code]++
		net[code] += quantity
	}
	for _, o := range orders {
		count("orders of 1 line", o.lines == 1)
		count("orders of 2 to 10 lines", o.lines > 1 && o.lines <= 10)
		count("orders of 11 to 50 lines", o.lines > 10 && o.lines <= 50)
		count("orders of more than 50 lines", o.lines > 50)
		have["lines of the longest order"] = max(have["lines of the longest order"], o.lines/have["lines"])
	}
	for _, s := range spellings {
		count("pairs of codes", len(s) == 2)
	}
	for _, units := range net {
		count("negative net units", units < 0)
	}
	// hottest is the share of a tenth of the values, the largest ones.
	hottest := func(values map[string]float64) float64 {
		sum, all := 0.0, 0.0
		for i, v := range slices.SortedFunc(maps.Values(values), func(a, b float64) int { return cmp.Compare(b, a) }) {
			all += v
			if i < len(values)/10 {
				sum += v
			}
		}
		return sum / all
	}
	delete(customers, "")
	have["lines of the hottest 10 % of codes"], have["orders of the busiest 10 % of customers"] = hottest(codes), hottest(customers)
	have["lines without a customer"] /= have["lines"]
	return have
}
