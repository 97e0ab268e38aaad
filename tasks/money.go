package tasks

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Money is an amount in ten-thousandths of a pound: 25500 is £2.55. An integer,
// because sums of many lines must come out exact whatever their order; four
// decimals, because wholesale prices go below a penny. Its range is about
// ± £922 million million.
//
// In JSON it is a string such as "2.55", so that no program on the way can turn
// it into a binary fraction.
type Money int64

const (
	moneyDecimals = 4
	moneyUnit     = 10_000 // ten-thousandths in a pound
)

// ParseMoney reads an exact decimal: an optional sign, digits, and optionally a
// point with one to four digits. It refuses what it could only keep by rounding.
// Its errors do not show s, as a worker logs them.
func ParseMoney(s string) (Money, error) {
	digits, negative := strings.CutPrefix(s, "-")
	if !negative {
		digits = strings.TrimPrefix(digits, "+")
	}
	whole, fraction, point := strings.Cut(digits, ".")
	if !isDigits(whole) || (point && !isDigits(fraction)) {
		return 0, errors.New("money: want a decimal such as 2.55")
	}
	if len(fraction) > moneyDecimals {
		return 0, fmt.Errorf("money: want at most %d decimals", moneyDecimals)
	}
	fraction += strings.Repeat("0", moneyDecimals-len(fraction))
	sign := ""
	if negative {
		// Parsed together with its sign, as the range reaches one further below
		// zero than above.
		sign = "-"
	}
	n, err := strconv.ParseInt(sign+whole+fraction, 10, 64)
	if err != nil {
		// The text is all digits, so that the range is all that can be wrong.
		return 0, fmt.Errorf("money: want %v to %v", Money(math.MinInt64), Money(math.MaxInt64))
	}
	return Money(n), nil
}

// String writes the amount with two decimals, or with the three or four that
// it takes to be exact. [ParseMoney] reads it back.
func (m Money) String() string {
	sign, n := "", uint64(m) //nolint:gosec // negated below, where it wraps back into range
	if m < 0 {
		sign, n = "-", -n
	}
	fraction := fmt.Sprintf("%04d", n%moneyUnit)
	fraction = fraction[:2] + strings.TrimRight(fraction[2:], "0")
	return sign + strconv.FormatUint(n/moneyUnit, 10) + "." + fraction
}

// MarshalText writes what String writes.
func (m Money) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what ParseMoney reads.
func (m *Money) UnmarshalText(text []byte) error {
	parsed, err := ParseMoney(string(text))
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}

// times returns the price of quantity units; ok is false when it is out of range.
func (m Money) times(quantity int64) (product Money, ok bool) {
	if m == 0 || quantity == 0 {
		return 0, true
	}
	p := int64(m) * quantity
	// Division undoes the product unless it overflowed; the smallest integer
	// divided by -1 overflows in turn and has to be asked for by name.
	if p/quantity != int64(m) || (quantity == -1 && int64(m) == math.MinInt64) {
		return 0, false
	}
	return Money(p), true
}

// add returns a + b; ok is false when it is out of range.
func add(a, b int64) (sum int64, ok bool) {
	sum = a + b
	return sum, (sum > a) == (b > 0)
}

// subtract returns a - b; ok is false when it is out of range.
func subtract(a, b int64) (difference int64, ok bool) {
	difference = a - b
	return difference, (difference < a) == (b > 0)
}

func isDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// clip shortens a value for an error text.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
