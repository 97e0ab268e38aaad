//go:build !unix

package journal

import "time"

// Now panics: this system has no clock that all processes read.
func Now() time.Duration { panic("journal: no monotonic clock on this system") }
