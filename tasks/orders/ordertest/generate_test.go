package ordertest_test

import (
	"bytes"
	"maps"
	"math"
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

// A figure is something that a measured file has, and its value in the extract
// of the public data set.
type figure struct {
	name      string
	want      float64
	tolerance float64 // as a share of what is wanted
}

// counts are figures that grow with the file: lines, unless they say otherwise.
var counts = []figure{
	{"lines", 26938, 0},
	{"orders", 870, 0.03},
	{"cancellations", 104, 0.1},
	{"lines of cancellations", 248, 0.15},
	{"lines without a customer", 10601, 0.06},
	{"orders without a customer", 98, 0.06},
	{"negative without a C", 22, 0.1},
	{"price 0", 43, 0.1},
	{"no description", 10, 0.15},
	{"lines in lower case", 118, 0.1},
	{"pairs of codes", 39, 0.1},
	{"POST", 51, 0.1},
	{"DOT", 23, 0.1},
	{"M", 11, 0.1},
	{"C2", 6, 0.35}, // the file has few, so one more or less is much
	{"AMAZONFEE", 2, 0.5},
	{"D", 1, 2},
	{"DCGSSGIRL", 1, 2},
	{"CRUK", 1, 2},
	{"gift_0001_10", 1, 2},
	{"not ASCII", 1, 2},
	{"equal to another", 325, 0.1},
	{"code again in the order", 662, 0.1},
	{"orders with a code again", 132, 0.15},
	{"trailing blank", 6390, 0.05},
	{"comma", 175, 0.1},
	{"quote", 66, 0.1},
	{"codes with negative net units", 33, 0.1},
	{"orders of 1 line", 135, 0.1},
	{"orders of 2 to 10 lines", 280, 0.1},
	{"orders of 11 to 50 lines", 358, 0.1},
	{"orders of 51 to 300 lines", 81, 0.1},
	{"orders of more than 300 lines", 16, 0.15},
}

// shares are figures of the file as a whole.
var shares = []figure{
	{"lines of the hottest code", 0.0054, 0.1},
	{"lines of the hottest 1 %", 0.066, 0.1},
	{"lines of the hottest 10 %", 0.371, 0.1},
	{"lines of the hottest 20 %", 0.564, 0.1},
	{"lines of the longest order", 749, 0.1},
	{"orders of the busiest customer", 19.0 / 772, 0.1},
	{"customers with one order", 481.0 / 596, 0.1},
	{"trading days", 5, 0.2}, // six in the extract, which has a third more lines
	{"orders that do not follow the one before", 0, 0},
	{"orders with two times", 0, 0},
	{"orders with two customers", 0, 0},
}

func TestFrequencies(t *testing.T) {
	t.Parallel()
	have := measure(t, ordertest.Rows(t, ordertest.File(t, ordertest.Lines)))
	compare := func(f figure, want float64) {
		if math.Abs(have[f.name]-want) > f.tolerance*want {
			t.Errorf("%s: want %.4g within %.0f %%, have %.4g", f.name, want, 100*f.tolerance, have[f.name])
		}
	}
	for _, f := range counts {
		compare(f, f.want*ordertest.Lines/26938)
		if have[f.name] < 1 {
			t.Errorf("%s: want one or more, have none", f.name)
		}
	}
	for _, f := range shares {
		compare(f, f.want)
	}
}

// Short files have every trap as well.
func TestTrapsOfAShortFile(t *testing.T) {
	t.Parallel()
	have := measure(t, ordertest.Rows(t, ordertest.File(t, ordertest.LeastLines)))
	for _, f := range counts {
		if have[f.name] < 2 && f.name != "orders of more than 300 lines" {
			t.Errorf("%s: want at least 2, have %g", f.name, have[f.name])
		}
	}
	if have["lines"] != ordertest.LeastLines {
		t.Errorf("lines: want %d, have %g", ordertest.LeastLines, have["lines"])
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
	orders, codes, folded, net := map[string]*order{}, map[string]float64{}, map[string]map[string]bool{}, map[string]int{}
	customers, days, seen := map[string]float64{}, map[string]bool{}, map[string]bool{}
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
			if customer != "" {
				customers[customer]++
			}
		} else {
			count("orders that do not follow the one before", number != last)
			count("orders with two times", at != o.time)
			count("orders with two customers", customer != o.customer)
		}
		last = number
		count("lines", true)
		count("lines of cancellations", number[0] == 'C')
		count("lines without a customer", customer == "")
		count("negative without a C", quantity < 0 && number[0] != 'C')
		count("price 0", price == "0.0")
		count("no description", description == "")
		count("trailing blank", strings.HasSuffix(description, " "))
		count("comma", strings.Contains(description, ","))
		count("quote", strings.Contains(description, `"`))
		count("not ASCII", strings.ContainsFunc(description, func(r rune) bool { return r > 127 }))
		count("lines in lower case", code != strings.ToUpper(code))
		count(code, code[0] > '9')
		count("code again in the order", o.codes[code])
		count("orders with a code again", o.codes[code] && !o.codes[""])
		o.codes[""] = o.codes[""] || o.codes[code]
		count("equal to another", seen[strings.Join(row, "\x00")])
		seen[strings.Join(row, "\x00")], o.codes[code], days[at[:10]] = true, true, true
		o.lines++
		codes[code]++
		net[code] += quantity
		fold := strings.ToUpper(code)
		if folded[fold] == nil {
			folded[fold] = make(map[string]bool)
		}
		folded[fold][code] = true
	}
	have["orders"], have["trading days"] = float64(len(orders)), float64(len(days))
	for _, o := range orders {
		count("orders of 1 line", o.lines == 1)
		count("orders of 2 to 10 lines", o.lines > 1 && o.lines <= 10)
		count("orders of 11 to 50 lines", o.lines > 10 && o.lines <= 50)
		count("orders of 51 to 300 lines", o.lines > 50 && o.lines <= 300)
		count("orders of more than 300 lines", o.lines > 300)
		have["lines of the longest order"] = max(have["lines of the longest order"], o.lines)
	}
	for _, spellings := range folded {
		count("pairs of codes", len(spellings) == 2)
	}
	for _, units := range net {
		count("codes with negative net units", units < 0)
	}
	// hottest is what the largest share of the values comes to.
	hottest := func(values map[string]float64, share float64) (sum float64) {
		sorted := slices.Sorted(maps.Values(values))
		slices.Reverse(sorted)
		for _, v := range sorted[:max(1, int(share*float64(len(sorted))))] {
			sum += v
		}
		return sum
	}
	lines := float64(len(rows))
	have["lines of the hottest code"] = hottest(codes, 0) / lines
	have["lines of the hottest 1 %"] = hottest(codes, 0.01) / lines
	have["lines of the hottest 10 %"] = hottest(codes, 0.1) / lines
	have["lines of the hottest 20 %"] = hottest(codes, 0.2) / lines
	have["orders of the busiest customer"] = hottest(customers, 0) / hottest(customers, 1)
	for _, n := range customers {
		count("customers with one order", n == 1)
	}
	have["customers with one order"] /= float64(len(customers))
	return have
}
