package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hibiken/asynq"

	"github.com/sidingq/siding/queue"
)

// A Setting is one row of the table.
type Setting struct {
	// Key is its name in the file; a dot leads into a section.
	Key string
	// Flag is its name on the command line without dashes. Flag is empty for a setting of the
	// environment alone.
	Flag string
	// Env is its environment variable.
	Env string
	// Default is its value when nobody gives one, as text. Commas separate the items of a list.
	Default string
	// Want says which values are accepted.
	Want string
	// Help says what it does.
	Help string
	// Kind says how it is written.
	Kind Kind

	// set adds an item to a list, and replaces the value of another kind. Nil if there is an entry.
	set func(string) error
	// clear empties a list before the first item of a source; nil otherwise.
	clear func()
	// private reports that a value is secret. Errors must not show a secret, and files and the
	// command line must not contain one. Nil if no value is secret.
	private func(string) bool
	// shown reports that an error may show a wrong value. Nil if an error may show all that
	// are not private.
	shown func(string) bool
	// units says that a value needs a unit of time.
	units bool
	// entry adds one entry of a mapping of names to mappings. Its error is about the field of the line, or with 0 about all.
	// Nil unless Kind is Limits or Policies.
	entry func(name string, fields []field) (line int, _ error)
	// below says what each entry has, and list which of its fields may have several values.
	below, list string
}

// A field of an entry has one value. A list has its name several times.
type field struct {
	name, value string
	line        int // in the file
}

// Kind says how a setting is written in the file.
type Kind int

// The kinds of settings.
const (
	Text     Kind = iota // a scalar
	Bool                 // true or false
	List                 // a sequence
	Numbers              // a mapping of names to numbers; elsewhere name=number,...
	Limits               // a mapping of patterns to limits; elsewhere the same text in braces
	Policies             // a mapping of kinds of tasks to policies, likewise
)

// errWant refuses a value that is not what the setting's Want says.
var errWant = errors.New("not what is wanted")

// errURL refuses the URL of a Redis server.
var errURL = errors.New("want host:port, have a URL: what else it has is in redis.tls, redis.username, redis.db and SIDING_REDIS_PASSWORD")

// envOf returns the environment variable of a key: lock.renew_every is SIDING_LOCK_RENEW_EVERY.
func envOf(key string) string { return "SIDING_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_")) }

// flagOf returns the flag of a key: lock.renew_every is --lock-renew-every.
func flagOf(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

// flag renames the flag.
func (s Setting) flag(name string) Setting {
	s.Flag = name
	return s
}

// mayBeEmpty reports whether a list without items is a value.
func (s Setting) mayBeEmpty() bool { return s.clear != nil && s.Default == "" }

// split returns the items of a list given as one text, and a text of another
// kind as the only item.
func (s Setting) split(text string) []string {
	if s.Kind == Text || s.Kind == Bool {
		return []string{text}
	}
	if text == "" && s.mayBeEmpty() {
		return nil
	}
	if s.Kind == List && isURL(text) {
		return []string{text} // a password in it may have commas
	}
	items := strings.Split(text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// one is a setting of one value, which parse reads if it can.
func one[T any](into *T, key, def, want, help string, parse func(string) (T, bool)) Setting {
	return Setting{
		Key: key, Flag: flagOf(key), Env: envOf(key), Default: def, Want: want, Help: help,
		set: func(text string) error {
			value, ok := parse(text)
			if !ok {
				return errWant
			}
			*into = value
			return nil
		},
	}
}

// words is a setting of a text that ok accepts.
func words[T ~string](into *T, key, def, want, help string, ok func(string) bool) Setting {
	return one(into, key, def, want, help, func(text string) (T, bool) { return T(text), ok(text) })
}

// choice is a setting of one of the values.
func choice[T any](into *T, key, def, want, help string, values map[string]T) Setting {
	return one(into, key, def, want, help, func(text string) (value T, ok bool) {
		value, ok = values[text]
		return value, ok
	})
}

// anyText is what most names and paths are.
const anyText = "text without control characters"

func isText(v string) bool { return !strings.ContainsFunc(v, unicode.IsControl) }

func text(into *string, key, help string) Setting {
	return words(into, key, "", anyText, help, isText)
}

// login is a user name of HTTP Basic authentication, in which a colon ends it.
func login(into *string, key, def, help string) Setting {
	s := words(into, key, def, "text without colons and control characters", help, func(v string) bool {
		return v != "" && !strings.Contains(v, ":") && isText(v)
	})
	s.shown = func(v string) bool { return !strings.Contains(v, ":") } // behind it may be a password
	return s
}

// prefix is a text that begins keys. Braces would move companions of a lock to another slot
// of a Cluster.
func prefix(into *string, key, def, help string) Setting {
	return words(into, key, def, "1 to 64 bytes without braces and control characters", help, func(v string) bool {
		return v != "" && len(v) <= 64 && !strings.ContainsAny(v, "{}") && isText(v)
	})
}

// address is a setting of an address to listen at, or off.
func address(into *string, key, def, help string) Setting {
	return one(into, key, def, "host:port or off", help, func(v string) (string, bool) {
		if v == "off" {
			return "", true
		}
		host, port, err := net.SplitHostPort(v)
		return v, err == nil && isPort(port, 0) && !strings.ContainsFunc(host, unicode.IsSpace)
	})
}

func dsn(into *Secret, key, def, help string) Setting {
	s := words(into, key, def, "a path, or postgres://user@host/database", help, func(v string) bool { return strings.TrimSpace(v) != "" })
	s.private = hasPassword
	return s
}

// secret is a setting of the environment alone.
func secret(into *Secret, key string) Setting {
	every := func(string) bool { return true }
	s := words(into, key, "", "it in the environment", "Only in the environment, as "+envOf(key)+".", every)
	s.private = every
	return s.flag("")
}

func boolean(into *bool, key, def, help string) Setting {
	s := choice(into, key, def, "true or false", help, map[string]bool{"true": true, "false": false})
	s.Kind = Bool
	return s
}

func number(into *int, key, def string, least, most int, help string) Setting {
	return one(into, key, def, fmt.Sprintf("%d to %d", least, most), help, func(v string) (int, bool) {
		n, err := strconv.Atoi(v)
		return n, err == nil && n >= least && n <= most
	})
}

func duration(into *time.Duration, key, def string, least, most time.Duration, help string) Setting {
	s := one(into, key, def, short(least)+" to "+short(most), help, func(v string) (time.Duration, bool) {
		d, err := time.ParseDuration(v)
		return d, err == nil && d >= least && d <= most
	})
	s.units = true
	return s
}

// auto is a duration, or auto: then it is zero, and the library chooses.
func auto(into *time.Duration, key string, most time.Duration, help string) Setting {
	s := duration(into, key, "auto", time.Millisecond, most, help)
	s.Want = "auto or " + s.Want
	given := s.set
	s.set = func(v string) error {
		if v == "auto" {
			*into = 0
			return nil
		}
		return given(v)
	}
	return s
}

// servers is a list of addresses of Redis servers.
func servers(into *[]string, key, def, help string) Setting {
	return Setting{
		Key: key, Flag: flagOf(key), Env: envOf(key), Default: def, Help: help, Want: "host:port", Kind: List, shown: isPlain,
		clear: func() { *into = nil },
		set: func(v string) error {
			if strings.Contains(v, "://") {
				return errURL
			}
			if !isServer(v) {
				return errWant
			}
			*into = append(*into, v)
			return nil
		},
	}
}

// numbers gives each queue a number; what names the number.
func numbers(into *map[string]int, key, def, what string, most int, help string) Setting {
	return Setting{
		Key: key, Flag: flagOf(key), Env: envOf(key), Default: def, Help: help, Kind: Numbers,
		Want:  fmt.Sprintf(`a name without {}/?#%%\ and a %s of 1 to %d, as name=%[1]s`, what, most),
		clear: func() { *into = nil },
		set: func(v string) error {
			name, value, _ := strings.Cut(v, "=")
			n, err := strconv.Atoi(value)
			queues := queue.ServerConfig{Asynq: asynq.Config{Queues: map[string]int{name: 1}}} // which knows the rules of names
			if err != nil || n < 1 || n > most || queues.Validate() != nil {
				return errWant
			}
			return add(into, name, n)
		},
	}
}

// add adds a value to a mapping.
func add[T any](into *map[string]T, name string, value T) error {
	if _, ok := (*into)[name]; ok {
		return fmt.Errorf("%s is there twice", name)
	}
	if *into == nil {
		*into = make(map[string]T)
	}
	(*into)[name] = value
	return nil
}

// isServer reports whether v is the address of a server.
func isServer(v string) bool {
	host, port, err := net.SplitHostPort(v)
	return err == nil && host != "" && isPort(port, 1) &&
		!strings.ContainsFunc(host, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("/@,=", r) })
}

func isPort(text string, least int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= least && n <= 65535
}

// short writes 1h0m0s as 1h.
func short(d time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}
