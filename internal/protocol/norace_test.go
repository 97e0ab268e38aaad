//go:build !race

package protocol_test

const small = false
