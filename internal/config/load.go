package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// An Override is a setting given on the command line.
type Override struct {
	// Flag is the setting's flag, without dashes.
	Flag string
	// Value is what was given. Several overrides of a list add up.
	Value string
}

// Load reads the file at path (none when that is empty), then the environment
// through env (os.LookupEnv, say; an empty variable counts as none), then the
// overrides, and checks that the values go together. Its error names every
// mistake it found, one a line, with the place of each.
func Load(path string, env func(string) (string, bool), overrides ...Override) (Config, error) {
	l := load(path, env, overrides)
	return l.config, l.err
}

// Place returns where Load, given the same, finds the value of the setting of this key, as its errors
// name the place; the key alone for one that has its default.
func Place(key, path string, env func(string) (string, bool), overrides ...Override) string {
	return cmp.Or(load(path, env, overrides).origins[key], key)
}

func load(path string, env func(string) (string, bool), overrides []Override) *loader {
	l := &loader{config: Default(), settings: Settings(), origins: make(map[string]string)}
	if path != "" {
		l.file(path)
	}
	l.environment(env)
	l.flags(overrides)
	// Relations of values that were refused are no news.
	if l.err == nil {
		l.check()
	}
	return l
}

// others are the variables of the environment that begin like settings but are
// none: SIDING_CONFIG names the file; the rest belongs to the project's tests.
func others(name string) bool {
	switch name {
	case "SIDING_CONFIG", "SIDING_ORDERS", "SIDING_SEED", "SIDING_VERIFY":
		return true
	default:
		return strings.HasPrefix(name, "SIDING_TEST_")
	}
}

// CheckEnv returns an error that names every variable of environ (in the form
// of os.Environ) that begins with SIDING_ and is no setting. SIDING_CONFIG, by
// which programs find their file, is left alone. So are SIDING_ORDERS,
// SIDING_SEED, SIDING_VERIFY and SIDING_TEST_..., which belong to the tests.
func CheckEnv(environ []string) error {
	var known []string
	for _, s := range Settings() {
		known = append(known, s.Env)
	}
	var errs []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "SIDING_") || others(name) || slices.Contains(known, name) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: no such setting%s", name, unknown(name, known)))
	}
	return errors.Join(errs...)
}

// A loader collects the values, their origins and all errors.
type loader struct {
	config   Config
	settings []Setting
	// origins says, by key, where a value came from, as errors begin; a key
	// that has its default is absent.
	origins map[string]string
	url     bool // an address of Redis was given as a URL
	err     error
}

func (l *loader) fail(format string, args ...any) {
	l.err = errors.Join(l.err, fmt.Errorf(format, args...))
}

func (l *loader) environment(env func(string) (string, bool)) {
	for _, s := range l.settings {
		value, ok := env(s.Env)
		if !ok || value == "" {
			continue
		}
		l.start(s, s.Env)
		l.putAll(s, s.Env, value)
	}
}

func (l *loader) flags(overrides []Override) {
	started := make(map[string]bool)
	for _, o := range overrides {
		i := slices.IndexFunc(l.settings, func(s Setting) bool { return s.Flag != "" && s.Flag == o.Flag })
		if i < 0 {
			l.fail("--%s: no such setting", o.Flag)
			continue
		}
		s, origin := l.settings[i], "--"+o.Flag
		if s.private != nil && s.private(o.Value) {
			l.fail("%s: want no password on the command line, where others can read it: set %s", origin, s.Env)
			continue
		}
		if !started[s.Key] {
			l.start(s, origin)
			started[s.Key] = true
		}
		l.putAll(s, origin, o.Value)
	}
}

// start makes origin the source of a setting.
func (l *loader) start(s Setting, origin string) {
	l.origins[s.Key] = origin
	if s.Key == "redis.addrs" {
		l.url = false
	}
	if s.clear != nil {
		s.clear(&l.config)
	}
}

// putAll sets the items in a text that came from the place.
func (l *loader) putAll(s Setting, place, text string) {
	items := s.split(text)
	if s.Key == "redis.addrs" && len(items) > 1 {
		s.shown = plainPort.MatchString // a name without a port may be a password
	}
	for _, item := range items {
		l.put(s, place, item)
	}
}

// put sets one item that came from the place.
func (l *loader) put(s Setting, place, item string) {
	if s.Key == "redis.addrs" && strings.Contains(item, "://") {
		l.redisURL(place, item)
		return
	}
	switch err := s.set(&l.config, item); {
	case err == nil:
		// An empty text is as good as none; no relation is its fault.
		if item == "" {
			delete(l.origins, s.Key)
		}
	case errors.Is(err, errUnit):
		l.fail("%s: want %s, have %s: its unit is missing, such as %[3]ss", place, s.Want, s.show(item))
	case errors.Is(err, errWant):
		l.fail("%s: want %s, have %s", place, s.Want, s.show(item))
	default:
		l.fail("%s: %w", place, err)
	}
}

// show returns a value as errors show it.
func (s Setting) show(value string) string {
	const most = 80
	switch {
	case s.private != nil && s.private(value), isURL(value):
		return hidden
	case value == "":
		return "nothing"
	case s.shown != nil && !s.shown(value):
		return hidden
	case len(value) > most:
		return fmt.Sprintf("%q...", value[:most])
	case strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }):
		return fmt.Sprintf("%q", value)
	}
	return value
}
