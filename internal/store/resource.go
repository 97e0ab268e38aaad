package store

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxResource is the longest name of a resource, in bytes.
const MaxResource = 512

// ErrResource is lock.ErrResource.
var ErrResource = errors.New("lock: bad resource name")

// CheckResource returns an error that matches [ErrResource] if name cannot be a resource.
func CheckResource(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrResource)
	case len(name) > MaxResource:
		return fmt.Errorf("%w: want at most %d bytes, have %d", ErrResource, MaxResource, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: it is not UTF-8: %q", ErrResource, name)
	case strings.ContainsAny(name, "{}"):
		return fmt.Errorf("%w: braces would change its Redis Cluster slot: %q", ErrResource, name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: it holds a control character: %q", ErrResource, name)
	}
	return nil
}
