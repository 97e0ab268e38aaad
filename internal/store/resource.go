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
	case !paired(name):
		return fmt.Errorf("%w: braces have to be in pairs, the first not empty, as a Redis Cluster chooses slots by them: %q", ErrResource, name)
	case strings.Contains(name, "{") && strings.Contains(name, "siding:"):
		return fmt.Errorf("%w: a name with braces and \"siding:\" is one of a key beside a lock: %q", ErrResource, name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: it holds a control character: %q", ErrResource, name)
	}
	return nil
}

// paired reports whether each brace of name has its other half, and the first pair is not empty. Then what is put
// behind the name, as [Beside] does, leaves it in its slot of a Cluster; and no name in braces begins another one.
func paired(name string) bool {
	if strings.HasPrefix(name[strings.IndexByte(name, '{')+1:], "}") {
		return false
	}
	depth := 0
	for i := range len(name) {
		switch name[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth < 0 {
				return false
			}
		}
	}
	return depth == 0
}

// CheckBare returns an error that matches [ErrResource] if the lock of a resource without a prefix would be one of the keys
// that Siding and asynq use for other things.
func CheckBare(resource string) error {
	for _, taken := range []string{"siding:", "siding-", "asynq:", "{" + DefaultPrefix} {
		if strings.HasPrefix(resource, taken) {
			return fmt.Errorf("%w: without a prefix, no name may begin with %q, as keys do that are no locks: %q", ErrResource, taken, resource)
		}
	}
	return nil
}
