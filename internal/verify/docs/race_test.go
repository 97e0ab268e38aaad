//go:build race

package docs_test

// race has go list compile as go test -race does, so that each uses what the other has compiled.
const race = "-race=true"
