package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// Limit is how many words of one sort there are, besides [Other].
const Limit = 100

// A Set has a value for each word of one sort. The first words, up to [Limit], have values of their
// own. All later words share the value of [Other]. So a program that makes up classes or kinds cannot
// fill the memory of a worker or of Prometheus. A Set is safe for concurrent use.
type Set[T any] struct {
	create func(word string) T
	other  T

	mu  sync.Mutex // of writers
	all atomic.Pointer[map[string]T]
}

// NewSet returns a Set without words. The Set calls create once for each word, and for [Other] at once.
// create gets valid UTF-8.
func NewSet[T any](create func(word string) T) *Set[T] {
	s := &Set[T]{create: create, other: create(Other)}
	s.all.Store(&map[string]T{Other: s.other})
	return s
}

// Of returns the value of a word. For a known word it takes no lock and allocates nothing.
func (s *Set[T]) Of(word string) T {
	all := *s.all.Load()
	if value, ok := all[word]; ok {
		return value
	}
	if len(all) > Limit {
		return s.other
	}
	return s.add(word)
}

func (s *Set[T]) add(word string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := *s.all.Load()
	if value, ok := all[word]; ok {
		return value
	}
	if len(all) > Limit || short(word) != word {
		return s.other
	}
	value := s.create(Word(word))
	more := maps.Clone(all)
	more[strings.Clone(word)] = value // the word may be a part of a large string
	s.all.Store(&more)
	return value
}
