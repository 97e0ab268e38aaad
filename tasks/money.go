package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Money is an amount in ten-thousandths of a pound: 25500 is £2.55. Sums of
// integers are exact in any order, and wholesale prices go below a penny. The
// range is about ± £922 million million.
//
// In JSON an amount is a string such as "2.55", which no program on the way turns
// into a binary fraction.
type Money int64

const (
	moneyDecimals = 4
	moneyUnit     = 10_000 // ten-thousandths in a pound
	cent          = moneyUnit / 100
)

// ParseMoney reads an exact decimal: an optional sign, digits, and optionally a point with one to
// four digits. Nothing is rounded. Errors do not show s, as a worker logs them.
func ParseMoney(s string) (Money, error) {
	digits := strings.TrimLeft(s, "+-")
	sign := strings.TrimSuffix(s, digits)
	whole, fraction, point := strings.Cut(digits, ".")
	if len(sign) > 1 || whole == "" || point && fraction == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, errors.New("want a decimal such as 2.55")
	}
	if len(fraction) > moneyDecimals {
		return 0, fmt.Errorf("want at most %d decimals", moneyDecimals)
	}
	fraction += strings.Repeat("0", moneyDecimals-len(fraction))
	n, err := strconv.ParseInt(sign+whole+fraction, 10, 64)
	if err != nil {
		// The text is all digits: only the range can be wrong.
		return 0, fmt.Errorf("want %v to %v", Money(math.MinInt64), Money(math.MaxInt64))
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

// UnmarshalText reads what ParseMoney reads. Its error is of the one type to which encoding/json adds the field.
func (m *Money) UnmarshalText(text []byte) error {
	parsed, err := ParseMoney(string(text))
	if err != nil {
		return &json.UnmarshalTypeError{Value: "string: " + err.Error(), Type: reflect.TypeFor[Money]()}
	}
	*m = parsed
	return nil
}

// Times returns the price of quantity units; ok is false when it is out of range.
func (m Money) Times(quantity int64) (product Money, ok bool) {
	product = m * Money(quantity)
	if m == 0 || quantity == 0 {
		return 0, true
	}
	// Division undoes the product unless that overflowed. The smallest integer overflows also when
	// -1 divides it.
	return product, product/Money(quantity) == m && (quantity != -1 || m != math.MinInt64)
}

// Plus returns the sum; ok is false when it is out of range.
func (m Money) Plus(n Money) (sum Money, ok bool) {
	sum = m + n
	return sum, (sum > m) == (n > 0)
}
