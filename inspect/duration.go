package inspect

import (
	"encoding/json"
	"fmt"
	"time"
)

// A Duration is a [time.Duration]. In JSON it is a number of seconds, rounded to milliseconds, such as
// 4.187.
type Duration time.Duration

// MarshalJSON writes the seconds.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(d).Round(time.Millisecond).Milliseconds()) / 1000)
}

// UnmarshalJSON reads the seconds.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var seconds float64
	if err := json.Unmarshal(text, &seconds); err != nil {
		return fmt.Errorf("inspect: duration: want a number of seconds, have %q", text)
	}
	*d = Duration(seconds * float64(time.Second))
	return nil
}

// String is d for people, with two digits or three, such as "4.2 s" and "3 min".
func (d Duration) String() string {
	switch d := max(0, time.Duration(d)); {
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	default:
		return fmt.Sprintf("%.0f d", d.Hours()/24)
	}
}
