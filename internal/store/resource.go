package store

import (
	"errors"
	"fmt"
	"slices"
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
	case strings.Contains(name, ":siding:") || strings.Contains(name, "{") && strings.Contains(name, "siding:"): // in a Cluster all keys have braces
		return fmt.Errorf("%w: a name with \":siding:\", or braces and \"siding:\", is one of a key beside a lock: %q", ErrResource, name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: it holds a control character: %q", ErrResource, name)
	}
	return nil
}

// MaxResources is how many resources a task may need at once.
const MaxResources = 16

// Several resources that a task needs at once are one text, a line break before each name, as no name holds one: so a name that
// somebody has made of foreign input cannot become two. The names are sorted, and each is there once.

// Join returns the text of resources. That of one is its name.
func Join(names ...string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = strings.ReplaceAll(name, "\n", "\r") // which CheckResource refuses
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > 1 {
		return "\n" + strings.Join(all, "\n")
	}
	return strings.Join(all, "")
}

// Names returns the names of the resources of a text.
func Names(text string) []string {
	if several, ok := strings.CutPrefix(text, "\n"); ok {
		return strings.Split(several, "\n")
	}
	return []string{text}
}

// First returns the first name of a text. It allocates nothing.
func First(text string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(text, "\n"), "\n")
	return first
}

// SplitLocks returns the keys in the text of a task's locks, or of the keys by which it holds them: one text for all, with a line
// break between two, as in the scripts. That of one lock is its key.
func SplitLocks(text string) []string { return strings.Split(text, "\n") }

// JoinLocks is the opposite of [SplitLocks].
func JoinLocks(keys []string) string { return strings.Join(keys, "\n") }

// Show returns a text of resources for people.
func Show(text string) string { return strings.Join(Names(text), ", ") }

// CheckResources checks each resource of a text, and how many there are. It returns the text as [Join] makes it.
func CheckResources(text string) (string, error) {
	names := Names(text)
	for _, name := range names {
		if err := CheckResource(name); err != nil {
			return "", err
		}
	}
	if text = Join(names...); strings.Count(text, "\n") > MaxResources {
		return "", fmt.Errorf("%w: want at most %d at once, have %d", ErrResource, MaxResources, strings.Count(text, "\n"))
	}
	return text, nil
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

// taken begin the keys that Siding and asynq use for other things than locks. By "wait:" the tasks wait for the locks of another store.
var taken = []string{"siding:", "siding-", "asynq:", "wait:", "{wait:", "{" + DefaultPrefix}

// CheckBare returns an error that matches [ErrResource] if the lock of a resource without a prefix would be one of the keys
// that Siding and asynq use for other things.
func CheckBare(resource string) error {
	for _, taken := range taken {
		if strings.HasPrefix(resource, taken) {
			return fmt.Errorf("%w: without a prefix, no name may begin with %q, as keys do that are no locks: %q", ErrResource, taken, resource)
		}
	}
	return nil
}

// PrefixIsFree reports whether no resource behind a prefix makes one of the keys that Siding and asynq use for other things.
func PrefixIsFree(prefix string) bool {
	return !slices.ContainsFunc(taken, func(taken string) bool { return strings.HasPrefix(prefix, taken) || strings.HasPrefix(taken, prefix) })
}
