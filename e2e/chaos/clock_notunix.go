//go:build !unix

package chaos

import "time"

// Now is the time of the system's clock. Runs need a clock that nobody can set, and
// are not made here.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }
