//go:build !unix

package main

import "time"

// cpuTime returns 0: what this process has spent is not measured here.
func cpuTime() time.Duration { return 0 }
