package limits

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sidingq/siding/internal/store"
)

// ParseRate reads a rate as operators write it: the starts, a slash and the period, such as "100/1s". The
// error says what is wanted.
func ParseRate(text string) (store.Rate, error) {
	starts, period, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(starts)
	every, errPeriod := time.ParseDuration(period)
	if errors.Join(err, errPeriod) != nil {
		return store.Rate{}, fmt.Errorf("want starts/period such as 100/1s, have %q", text)
	}
	rate := store.Rate{Starts: n, Period: every}
	return rate, rate.Check()
}
