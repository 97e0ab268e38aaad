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

// String formats d as a [time.Duration] does.
func (d Duration) String() string { return time.Duration(d).String() }
