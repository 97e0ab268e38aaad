package ordertest

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The numbers below are those of an extract of the Online Retail data set with
// 26,938 lines and 870 orders. Only the numbers come from it: the products,
// customers and orders are made up.
const extractLines = 26938

// LeastLines is the smallest number of lines that has room for every trap.
const LeastLines = 2000

// Header is the first record of an order file.
var Header = []string{"InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "UnitPrice", "CustomerID", "Country"}

// A class is a kind of orders of similar length.
type class struct {
	orders      int // of this class in the extract
	least, most int // lines
	known       bool
	cancels     bool
	stocktake   bool // one line of price 0 with a clerk's note
}

var classes = []class{
	{orders: 41, least: 1, most: 1, stocktake: true},
	{orders: 9, least: 1, most: 1},
	{orders: 13, least: 2, most: 4},
	{orders: 8, least: 6, most: 19},
	{orders: 4, least: 62, most: 85},
	{orders: 7, least: 166, most: 271},
	{orders: 15, least: 411, most: 749},
	{orders: 3, least: 1, most: 1, cancels: true},
	{orders: 50, least: 1, most: 1, known: true, cancels: true},
	{orders: 42, least: 2, most: 5, known: true, cancels: true},
	{orders: 9, least: 6, most: 13, known: true, cancels: true},
	{orders: 36, least: 1, most: 1, known: true},
	{orders: 97, least: 2, most: 5, known: true},
	{orders: 113, least: 6, most: 10, known: true},
	{orders: 182, least: 11, most: 20, known: true},
	{orders: 171, least: 21, most: 50, known: true},
	{orders: 54, least: 51, most: 100, known: true},
	{orders: 15, least: 101, most: 200, known: true},
	{orders: 1, least: 529, most: 529, known: true},
}

// A knot of a curve says what the item of a rank has; between knots the curve is straight.
type knot struct{ rank, value float64 }

var (
	linesOfProducts  = []knot{{0, 146}, {1, 122}, {2, 85}, {10, 65}, {25, 56}, {50, 48}, {100, 38}, {255, 25}, {500, 17}, {700, 13}, {1000, 9}, {1276, 7}, {1500, 5}, {1800, 3}, {2150, 1}, {2553, 1}}
	ordersOfCustomer = []knot{{0, 19}, {1, 8}, {5, 4}, {9, 3}, {28, 3}, {29, 2}, {115, 2}, {116, 1}, {596, 1}}
)

type order struct {
	class
	number, customer, country string
	at                        time.Time
	lines                     []line
}

type line struct {
	product
	quantity int
	trapped  bool // holds a trap, so that no other may overwrite it
}

type product struct {
	sku, description string
	price            float64
}

// A generator makes one file.
type generator struct {
	*rand.Rand
	scale  float64 // lines of the file for each line of the extract
	orders []*order
}

// Generate returns an order file in the Online Retail format, CSV with a header
// and so many lines. It has the skew and the dirt of real files at their real
// frequency, each trap at least twice. The same arguments give the same file. It
// panics if lines is less than [LeastLines].
func Generate(seed uint64, lines int) []byte {
	if lines < LeastLines {
		panic(fmt.Sprintf("ordertest: want at least %d lines, have %d", LeastLines, lines))
	}
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), scale: float64(lines) / extractLines}
	g.makeOrders(lines)
	g.nameOrders()
	g.fillOrders(lines)
	g.repeatLines()
	g.setTraps()
	g.oversellReturns()
	return g.csv()
}

// count returns how many of the file stand for n of the extract, and at least 2.
func (g *generator) count(n int) int { return max(2, g.share(n)) }

func (g *generator) share(n int) int { return int(math.Round(float64(n) * g.scale)) }

// makeOrders makes empty orders of all classes with so many lines together.
func (g *generator) makeOrders(lines int) {
	total := 0
	for _, c := range classes {
		for i, n := 0, g.share(c.orders); i < n; i++ {
			// Spread over the class: the file's shape does not depend on the seed.
			at := (float64(i) + 0.5) / float64(n)
			size := int(math.Round(float64(c.least) * math.Pow(float64(c.most)/float64(c.least), at)))
			g.orders = append(g.orders, &order{class: c, lines: make([]line, size)})
			total += size
		}
	}
	// Rounding is made up for by orders of common length.
	for total != lines {
		if o := g.orders[g.IntN(len(g.orders))]; o.known && len(o.lines) > 10 {
			change := cmp.Compare(lines, total)
			o.lines = make([]line, len(o.lines)+change)
			total += change
		}
	}
	g.Shuffle(len(g.orders), func(i, j int) { g.orders[i], g.orders[j] = g.orders[j], g.orders[i] })
}

// nameOrders gives the orders their numbers, times and customers.
func (g *generator) nameOrders() {
	known := 0
	for _, o := range g.orders {
		if o.known {
			known++
		}
	}
	var customers []int
	for customer, orders := range deal(known, ordersOfCustomer) {
		customers = append(customers, slices.Repeat([]int{20001 + 7*customer}, orders)...)
	}
	g.Shuffle(len(customers), func(i, j int) { customers[i], customers[j] = customers[j], customers[i] })
	abroad := []string{"Germany", "France", "EIRE", "Spain", "Belgium", "Portugal"}
	number, at := 600_000, time.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC)
	for _, o := range g.orders {
		number += 1 + g.IntN(3)
		at = at.Add(time.Duration(g.IntN(9)) * time.Minute)
		for at.Hour() >= 18 || at.Weekday() == time.Saturday || at.Weekday() == time.Sunday {
			at = at.Truncate(24 * time.Hour).Add(32 * time.Hour) // eight o'clock of the next day
		}
		o.number, o.at, o.country = strconv.Itoa(number), at, "United Kingdom"
		if o.cancels {
			o.number = "C" + o.number
		}
		if o.known {
			customer := customers[0]
			customers = customers[1:]
			o.customer = strconv.Itoa(customer)
			if customer%12 == 0 {
				o.country = abroad[customer/12%len(abroad)]
			}
		}
	}
}

// fillOrders puts products on the lines, and the same one on two lines of an
// order only where it is too frequent for anything else.
func (g *generator) fillOrders(lines int) {
	// The lines of each order are spread evenly. A product takes neighbours.
	type slot struct {
		at   float64
		line *line
	}
	var slots []slot
	for _, o := range g.orders {
		offset := g.Float64()
		for i, place := range g.Perm(len(o.lines)) {
			slots = append(slots, slot{(float64(i) + offset) / float64(len(o.lines)), &o.lines[place]})
		}
	}
	slices.SortStableFunc(slots, func(a, b slot) int { return cmp.Compare(a.at, b.at) })
	counts := deal(lines, linesOfProducts)
	products := g.products(counts)
	for _, rank := range g.Perm(len(counts)) {
		for _, s := range slots[:counts[rank]] {
			s.line.product = products[rank]
		}
		slots = slots[counts[rank]:]
	}
	quantities := []int{1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 6, 6, 8, 10, 12, 12, 24, 48}
	for _, o := range g.orders {
		for i := range o.lines {
			l := &o.lines[i]
			l.quantity = quantities[g.IntN(len(quantities))]
			if o.cancels {
				l.quantity *= -1
			}
		}
	}
}

// products makes products that have so many lines each.
func (g *generator) products(counts []int) []product {
	kinds := []string{"BOX", "LANTERN", "MUG", "GARLAND", "CUSHION", "CLOCK", "TRAY", "BASKET", "CANDLE", "APRON"}
	looks := []string{"RED", "BLUE", "STRIPED", "SPOTTED", "WOODEN", "TIN", "LINEN", "FELT", "PAPER", "GLASS"}
	themes := []string{"OWL", "FOX", "HARE", "ROBIN", "BADGER", "HEDGEHOG", "OTTER", "WREN", "TOAD", "MOLE"}
	word := func(of []string) string { return of[g.IntN(len(of))] }
	prices := []float64{0.39, 0.42, 0.83, 0.85, 1.25, 1.25, 1.45, 1.65, 1.95, 2.1, 2.46, 2.95, 3.75, 4.13, 4.95, 8, 10.79}
	products := make([]product, len(counts))
	for rank, code := range g.Perm(80_000)[:len(counts)] {
		p := product{sku: strconv.Itoa(10_000 + code), price: prices[g.IntN(len(prices))]}
		if g.IntN(6) == 0 {
			p.sku += string("ABCDEF"[g.IntN(6)])
		}
		p.description = strings.Join([]string{word(looks), word(kinds), word(themes)}, " ")
		products[rank] = p
	}
	blanks := g.count(6390)
	for _, rank := range g.Perm(len(counts)) {
		if counts[rank] <= blanks {
			products[rank].description += " "
			blanks -= counts[rank]
		}
	}
	return products
}

// repeatLines puts products on several lines of some orders, also on lines that
// are equal in everything.
func (g *generator) repeatLines() {
	again, equal := g.count(662), g.count(325)
	var long []*order
	for _, o := range g.orders {
		codes, lines := make(map[string]bool), make(map[line]bool)
		for _, l := range o.lines {
			codes[l.sku], lines[l] = true, true
		}
		// What has come about by itself counts.
		again -= len(o.lines) - len(codes)
		equal -= len(o.lines) - len(lines)
		if len(o.lines) > 20 && len(long) < g.count(132) {
			long = append(long, o)
		}
	}
	equal = max(equal, 2)
	for n := 0; n < max(again, equal); {
		o := long[g.IntN(len(long))]
		a, b := &o.lines[g.IntN(len(o.lines))], &o.lines[g.IntN(len(o.lines))]
		if a == b || a.trapped || b.trapped {
			continue
		}
		b.product, b.quantity = a.product, a.quantity
		if n >= equal {
			b.quantity++
		}
		a.trapped, b.trapped = true, true
		n++
	}
}

// setTraps sets the traps that are on single lines.
func (g *generator) setTraps() {
	var stocktakes []*line
	for _, o := range g.orders {
		if o.stocktake {
			stocktakes = append(stocktakes, &o.lines[0])
		}
	}
	notes := []string{"check", "damaged", "found", "wet", "???"}
	for i, l := range stocktakes {
		l.trapped, l.price, l.description = true, 0, notes[g.IntN(len(notes))]
		if i < g.count(22) {
			l.quantity *= -(1 + g.IntN(5))
		}
		if i >= len(stocktakes)-g.count(10) {
			l.description = ""
		}
	}
	g.trap(g.count(43)-len(stocktakes), func(l *line) { l.price = 0 })
	g.trap(g.count(175), func(l *line) { l.description = "SET OF 3, " + l.description })
	g.trap(g.count(66), func(l *line) { l.description = `12" ` + l.description })
	for _, service := range []struct {
		lines int // in the extract
		product
	}{
		{51, product{"POST", "POSTAGE", 18}},
		{23, product{"DOT", "POSTAGE OF WEB ORDERS", 938.2}},
		{11, product{"M", "Manual", 7.95}},
		{6, product{"C2", "CARRIAGE", 50}},
		{2, product{"AMAZONFEE", "FEE", 9400.61}},
		{1, product{"D", "Discount", 97.5}},
		{1, product{"DCGSSGIRL", "PARTY BAG", 3.29}},
		{1, product{"CRUK", "Commission", 1100.4}},
		{1, product{"gift_0001_10", "Voucher of £10.00", 8.33}},
	} {
		g.trap(g.count(service.lines), func(l *line) { l.product, l.quantity = service.product, cmp.Compare(l.quantity, 0) })
	}
	g.foldCase()
}

// trap changes n lines that hold no trap yet.
func (g *generator) trap(n int, change func(*line)) {
	for n > 0 {
		lines := g.orders[g.IntN(len(g.orders))].lines
		if l := &lines[g.IntN(len(lines))]; !l.trapped {
			l.trapped = true
			change(l)
			n--
		}
	}
}

// foldCase writes the codes of some products in lower case, on some of their lines.
func (g *generator) foldCase() {
	free := make(map[string][]*line)
	for _, l := range g.all() {
		if !l.trapped && strings.ToLower(l.sku) != l.sku {
			free[l.sku] = append(free[l.sku], l)
		}
	}
	pairs := g.count(39)
	for _, l := range g.all() {
		sku := l.sku
		if len(free[sku]) > 3 && pairs > 0 {
			for _, l := range free[sku][:3] {
				l.sku, l.trapped = strings.ToLower(sku), true
			}
			free[sku] = nil
			pairs--
		}
	}
}

// oversellReturns makes some products come back more often than they were sold.
func (g *generator) oversellReturns() {
	net := make(map[string]int)
	for _, l := range g.all() {
		net[l.sku] += l.quantity
	}
	want := g.count(33)
	for _, n := range net {
		if n < 0 {
			want--
		}
	}
	for _, l := range g.all() {
		if want > 0 && l.quantity < 0 && !l.trapped && net[l.sku] >= 0 {
			l.quantity -= net[l.sku] + 1
			net[l.sku] = -1
			want--
		}
	}
}

// all returns the lines of all orders.
func (g *generator) all() []*line {
	var all []*line
	for _, o := range g.orders {
		for i := range o.lines {
			all = append(all, &o.lines[i])
		}
	}
	return all
}

func (g *generator) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(Header) // a buffer takes everything
	for _, o := range g.orders {
		for _, l := range o.lines {
			price := strconv.FormatFloat(l.price, 'f', -1, 64)
			if !strings.Contains(price, ".") {
				price += ".0"
			}
			_ = w.Write([]string{
				o.number, l.sku, l.description, strconv.Itoa(l.quantity), o.at.Format("2006-01-02T15:04:05"), price, o.customer, o.country,
			})
		}
	}
	w.Flush()
	return b.Bytes()
}

// deal gives n items out to ranks in proportion to a curve, and returns how many
// each has.
func deal(n int, curve []knot) []int {
	var weights []float64
	var sum float64
	for i, to := range curve[1:] {
		from := curve[i]
		for rank := from.rank; rank < to.rank; rank++ {
			weight := from.value + (to.value-from.value)*(rank-from.rank)/(to.rank-from.rank)
			weights = append(weights, weight)
			sum += weight
		}
	}
	counts := make([]int, len(weights))
	var before float64
	for rank, weight := range weights {
		// The sums are rounded, so that the counts come to n.
		counts[rank] = int(math.Round(float64(n)*(before+weight)/sum)) - int(math.Round(float64(n)*before/sum))
		before += weight
	}
	return counts
}
