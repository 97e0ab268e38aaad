package ordertest

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// LeastLines is the smallest number of lines that has room for every trap.
const LeastLines = 2000

// Header is the first record of an order file.
var Header = []string{"InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "UnitPrice", "CustomerID", "Country"}

type line struct {
	product
	order, customer, country string
	at                       time.Time
	quantity                 int
	trapped                  bool // holds a trap, so that no other may overwrite it
}

type product struct {
	sku, description string
	price            float64
}

// A generator makes one file.
type generator struct {
	*rand.Rand
	products []product // the hottest first
	lines    []line
}

// Generate returns an order file in the Online Retail format: CSV with a header and so many lines.
// The file has the skew of a real one (long orders, hot products, busy customers), and its dirt:
// each trap at least twice. The same arguments give the same file. Generate panics if lines is less
// than [LeastLines].
func Generate(seed uint64, lines int) []byte {
	if lines < LeastLines {
		panic(fmt.Sprintf("ordertest: want at least %d lines, have %d", LeastLines, lines))
	}
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	g.makeProducts()
	g.makeOrders(lines)
	g.setTraps()
	return g.csv()
}

const productCount = 2500

// one returns one of the words.
func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) makeProducts() {
	prices := []float64{0.39, 0.42, 0.83, 0.85, 1.25, 1.25, 1.45, 1.65, 1.95, 2.1, 2.46, 2.95, 3.75, 4.13, 4.95, 8, 10.79}
	for rank, code := range g.Perm(80_000)[:productCount] {
		p := product{sku: strconv.Itoa(10_000 + code), price: prices[g.IntN(len(prices))]}
		if rank%6 == 0 {
			p.sku += g.one("A", "B", "C")
		}
		p.description = g.one("RED ", "STRIPED ", "WOODEN ", "TIN ") + g.one("BOX ", "LANTERN ", "MUG ", "CLOCK ") + g.one("OWL", "FOX", "ROBIN", "WREN")
		if rank%4 == 0 {
			p.description += " "
		}
		g.products = append(g.products, p)
	}
}

// makeOrders makes orders of so many lines together. Their lengths and kinds do not depend on the
// seed. An order has a length of the form most^u, where the u are spread evenly.
func (g *generator) makeOrders(lines int) {
	skew := func(offset float64, last uint64) *rand.Zipf { return rand.NewZipf(g.Rand, 1.01, offset, last) }
	products, customers := skew(100, productCount-1), skew(10, 600)
	quantities := []int{1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 6, 6, 8, 10, 12, 12, 24, 48}
	at := time.Date(2026, time.March, 2, 8, 0, 0, 0, time.UTC)
	for n := 0; len(g.lines) < lines; n++ {
		if at = at.Add(time.Duration(g.IntN(9)) * time.Minute); at.Hour() >= 18 {
			at = at.Add(14 * time.Hour)
		}
		l, most, sign := line{order: strconv.Itoa(600_000 + 2*n), at: at, country: "United Kingdom"}, 100.0, 1
		customer := 20_001 + 7*customers.Uint64()
		l.customer = strconv.FormatUint(customer, 10)
		if customer%12 == 0 {
			l.country = g.one("Germany", "France", "EIRE")
		}
		stocktake := n%18 == 4 // one line of price 0 with a clerk's note
		switch {
		case stocktake:
			l.customer, most = "", 1
		case n%18 == 13: // of a guest
			l.customer, most = "", 700
		case n%8 == 0:
			l.order, most, sign = "C"+l.order, 13, -1
		}
		_, u := math.Modf(float64(n) * math.Phi)
		for range min(int(math.Round(math.Pow(most, u))), lines-len(g.lines)) {
			l.product, l.quantity = g.products[products.Uint64()], sign*quantities[g.IntN(len(quantities))]
			if stocktake {
				l.price, l.description, l.trapped = 0, g.one("", "check", "damaged", "???"), true
				l.quantity *= 1 - 2*(n/18%2)
			}
			g.lines = append(g.lines, l)
		}
	}
}

// setTraps sets traps on as many lines as in an extract of the public data set.
func (g *generator) setTraps() {
	g.trap(33, func(l, _ *line) bool { // comes back more often than it was sold
		l.quantity *= 5000
		return l.quantity < 0
	})
	g.trap(325, func(l, before *line) bool { // equal in everything
		*l = *before
		return true
	})
	g.trap(337, func(l, before *line) bool { // a product again in the order
		*l = *before
		l.quantity *= 2
		return true
	})
	g.trap(118, func(l, _ *line) bool {
		l.product = g.products[6*g.IntN(20)]
		l.sku = strings.ToLower(l.sku)
		return true
	})
	describe := func(lines int, before, after string) {
		g.trap(lines, func(l, _ *line) bool { l.description = before + l.description + after; return true })
	}
	describe(175, "SET OF 3, ", "")
	describe(66, `12" `, "")
	g.trap(10, func(l, _ *line) bool { l.price, l.description = 0, ""; return true })
	for _, service := range []struct {
		lines int
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
		g.trap(service.lines, func(l, _ *line) bool {
			l.product, l.quantity = service.product, cmp.Compare(l.quantity, 0)
			return true
		})
	}
}

// trap changes as many lines as stand for so many of the extract, and at least 2. These lines hold
// no trap, and follow a line of the same order. change returns false if a line does not fit.
func (g *generator) trap(lines int, change func(l, before *line) bool) {
	const extract = 26938 // lines
	for n := max(2, lines*len(g.lines)/extract); n > 0; {
		i := 1 + g.IntN(len(g.lines)-1)
		l, before := g.lines[i], &g.lines[i-1]
		if !l.trapped && !before.trapped && l.order == before.order && change(&l, before) {
			l.trapped, before.trapped = true, true
			g.lines[i] = l
			n--
		}
	}
}

func (g *generator) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write(Header) // a buffer takes everything
	for _, l := range g.lines {
		price := strconv.FormatFloat(l.price, 'f', -1, 64)
		if !strings.Contains(price, ".") {
			price += ".0"
		}
		_ = w.Write([]string{
			l.order, l.sku, l.description, strconv.Itoa(l.quantity), l.at.Format("2006-01-02T15:04:05"), price, l.customer, l.country,
		})
	}
	w.Flush()
	return b.Bytes()
}
