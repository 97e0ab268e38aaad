//go:build race

package protocol_test

// The race detector makes an exploration, which has one goroutine, ten times slower.
const small = true
