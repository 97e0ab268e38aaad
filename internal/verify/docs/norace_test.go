//go:build !race

package docs_test

// race has go list compile as go test does.
const race = "-race=false"
