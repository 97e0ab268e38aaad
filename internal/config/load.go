package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"
)

// defaultFile is read when no other file is named and it is there.
const defaultFile = "config.yaml"

// An Override is a setting given on the command line.
type Override struct {
	// Flag is the setting's flag, without dashes.
	Flag string
	// Value is the text after the flag. Several overrides of a list add up.
	Value string
}

// Sources have the settings of a program.
type Sources struct {
	// File is the path of the file, from the flag of [AddFileFlag]. If it is empty, SIDING_CONFIG names
	// the file, or it is config.yaml, if there is one.
	File string
	// Environ is the environment, in the form of os.Environ. An empty variable counts as none.
	Environ []string
	// Flags are the settings given on the command line.
	Flags []Override
}

// Load reads the file, then the environment, then the flags, and checks that the values go
// together. The error names every mistake, one a line, with the place of each.
func (s Sources) Load() (Config, error) {
	l := &loader{config: Default()}
	l.settings = table(&l.config)
	vars := variables(s.Environ)
	if s.File != "" {
		l.file("--"+fileFlag, s.File)
	} else if path := vars["SIDING_CONFIG"]; path != "" {
		l.file("SIDING_CONFIG", path)
	} else if _, err := os.Stat(defaultFile); !errors.Is(err, os.ErrNotExist) {
		l.file("config", defaultFile) // also if it cannot be read, which is an error
	}
	l.environment(vars)
	l.flags(s.Flags)
	if l.err == nil { // else wrong values may not go together either
		l.check()
	}
	return l.config, l.err
}

// Default returns the configuration of a program without any settings.
func Default() Config {
	c := Config{places: make(map[string]string)}
	for _, s := range table(&c) {
		for _, item := range s.split(s.Default) {
			if err := s.set(item); err != nil {
				panic("config: default of " + s.Key + ": " + err.Error()) // the table is wrong
			}
		}
	}
	return c
}

// variables returns the variables of an environment that begin with SIDING_. The first of a
// name counts, as in os.Getenv.
func variables(environ []string) map[string]string {
	vars := make(map[string]string)
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if _, ok := vars[name]; !ok && strings.HasPrefix(name, "SIDING_") {
			vars[name] = value
		}
	}
	return vars
}

// isOther reports whether a variable that begins with SIDING_ is no setting: SIDING_CONFIG names
// the file, and the project's tests have the others.
func isOther(name string) bool {
	return slices.Contains([]string{"SIDING_CONFIG", "SIDING_ORDERS", "SIDING_SEED", "SIDING_VERIFY"}, name) || strings.HasPrefix(name, "SIDING_TEST_")
}

// isServiceLink reports whether a variable is one of those by which Kubernetes tells each pod of the services in its namespace. One
// of them may be called siding, or siding-worker.
func isServiceLink(name string, vars map[string]string) bool {
	for host := range vars {
		service, ok := strings.CutSuffix(host, "_SERVICE_HOST")
		if ok && (strings.HasPrefix(name, service+"_SERVICE_") || strings.HasPrefix(name, service+"_PORT")) {
			return true
		}
	}
	return false
}

// A loader collects the values and all errors.
type loader struct {
	config   Config
	settings []Setting // of config
	err      error
}

func (l *loader) fail(format string, args ...any) {
	l.err = errors.Join(l.err, fmt.Errorf(format, args...))
}

func (l *loader) environment(vars map[string]string) {
	var known []string
	for _, s := range l.settings {
		known = append(known, s.Env)
		if value := vars[s.Env]; value != "" {
			l.start(s, s.Env)
			l.putAll(s, s.Env, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !isOther(name) && !isServiceLink(name, vars) && !slices.Contains(known, name) {
			l.fail("%s: no such setting%s", name, unknown(name, known))
		}
	}
}

func (l *loader) flags(overrides []Override) {
	for _, o := range overrides {
		i := slices.IndexFunc(l.settings, func(s Setting) bool { return s.Flag != "" && s.Flag == o.Flag })
		if i < 0 {
			l.fail("--%s: no such setting", o.Flag)
			continue
		}
		s, place := l.settings[i], "--"+o.Flag
		if s.private != nil && s.private(o.Value) {
			l.fail("%s: want no password on the command line, where others can read it: set %s", place, s.Env)
			continue
		}
		if l.config.places[s.Key] != place { // else one more item of a list
			l.start(s, place)
		}
		l.putAll(s, place, o.Value)
	}
}

// start makes place the source of a setting.
func (l *loader) start(s Setting, place string) {
	l.config.places[s.Key] = place
	if s.clear != nil {
		s.clear()
	}
}

// putAll sets the items in a text that came from the place.
func (l *loader) putAll(s Setting, place, text string) {
	if s.entry != nil {
		l.entriesIn(s, place, text)
		return
	}
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
	switch err := s.set(item); {
	case err == nil:
		// An empty text is as good as none; no relation is its fault.
		if item == "" {
			delete(l.config.places, s.Key)
		}
	case s.units && item != "" && item != "0" && len(item) < 10 && isNumber(item):
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
