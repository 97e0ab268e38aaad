package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sidingq/siding/queue"
)

// A Setting is one row of the table.
type Setting struct {
	// Key is its name in the file; a dot leads into a section.
	Key string
	// Flag is its name on the command line without dashes; empty when it
	// cannot be given there.
	Flag string
	// Env is its environment variable.
	Env string
	// Default is its value when nobody gives one, as text; the items of a list
	// are separated by commas.
	Default string
	// Want says which values are accepted.
	Want string
	// Help says what it does.
	Help string
	// Kind says how it is written.
	Kind Kind

	// set adds an item to a list, and replaces the value of another kind.
	set func(*Config, string) error
	// clear empties a list before the first item of a source; nil otherwise.
	clear func(*Config)
	// private reports that a value must not be shown, or given where others
	// may read it; nil when every value may.
	private func(string) bool
	// shown reports that an error may show a value that was refused; nil when it
	// may show all that are not private.
	shown func(string) bool
}

// Kind says how a setting is written in the file.
type Kind int

// The kinds of settings.
const (
	Text    Kind = iota // a scalar
	Bool                // true or false
	List                // a sequence
	Numbers             // a mapping of names to numbers; elsewhere name=number,...
)

// errWant refuses a value for not being what the setting's Want says.
var errWant = errors.New("not what is wanted")

// errUnit refuses a duration that is a number alone.
var errUnit = errors.New("without a unit")

func (s Setting) named(flag string) Setting {
	s.Env = "SIDING_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
	s.Flag = flag
	return s
}

// flagOf makes a flag's name of a key: lock.renew_every is --lock-renew-every.
func flagOf(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

// split returns the items of a list given as one text, and a text of another
// kind as the only item.
func (s Setting) split(text string) []string {
	if s.Kind != List && s.Kind != Numbers {
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

// anyText is what most names and paths are.
const anyText = "text without control characters"

func text(key string, field func(*Config) *string, help string) Setting {
	return Setting{
		Key: key, Help: help, Want: anyText,
		set: func(c *Config, v string) error {
			if strings.ContainsFunc(v, unicode.IsControl) {
				return errWant
			}
			*field(c) = v
			return nil
		},
	}.named(flagOf(key))
}

// login is a user name of HTTP Basic authentication, which ends it with a colon.
func login(key, def string, field func(*Config) *string, help string) Setting {
	s := text(key, field, help)
	s.Default, s.Want = def, "text without colons and control characters"
	given := s.set
	s.set = func(c *Config, v string) error {
		if v == "" || strings.Contains(v, ":") {
			return errWant
		}
		return given(c, v)
	}
	return s
}

// prefix is a text that begins keys: braces would move companions of a lock to
// another slot of a cluster.
func prefix(key, def string, field func(*Config) *string, help string) Setting {
	return Setting{
		Key: key, Default: def, Help: help, Want: "1 to 64 bytes without braces and control characters",
		set: func(c *Config, v string) error {
			if v == "" || len(v) > 64 || strings.ContainsAny(v, "{}") || strings.ContainsFunc(v, unicode.IsControl) {
				return errWant
			}
			*field(c) = v
			return nil
		},
	}.named(flagOf(key))
}

func number(key, def string, least, most int, field func(*Config) *int, help string) Setting {
	return Setting{
		Key: key, Default: def, Help: help, Want: fmt.Sprintf("%d to %d", least, most),
		set: func(c *Config, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < least || n > most {
				return errWant
			}
			*field(c) = n
			return nil
		},
	}.named(flagOf(key))
}

func boolean(key, def string, field func(*Config) *bool, help string) Setting {
	return Setting{
		Key: key, Default: def, Help: help, Want: "true or false", Kind: Bool,
		set: func(c *Config, v string) error {
			if v != "true" && v != "false" {
				return errWant
			}
			*field(c) = v == "true"
			return nil
		},
	}.named(flagOf(key))
}

func duration(key, def string, least, most time.Duration, field func(*Config) *time.Duration, help string) Setting {
	return Setting{
		Key: key, Default: def, Help: help, Want: short(least) + " to " + short(most),
		set: func(c *Config, v string) error {
			d, err := time.ParseDuration(v)
			if err != nil && v != "" && len(v) < 10 && isNumber(v) {
				return errUnit
			}
			if err != nil || d < least || d > most {
				return errWant
			}
			*field(c) = d
			return nil
		},
	}.named(flagOf(key))
}

// auto is a duration that may be left to the lock package, which derives it
// from the TTL when it is zero.
func auto(key string, most time.Duration, field func(*Config) *time.Duration, help string) Setting {
	const least = time.Millisecond
	s := duration(key, "auto", least, most, field, help)
	s.Want = "auto or " + s.Want
	given := s.set
	s.set = func(c *Config, v string) error {
		if v == "auto" {
			*field(c) = 0
			return nil
		}
		return given(c, v)
	}
	return s
}

func choice(key, def string, values []string, put func(*Config, string), help string) Setting {
	return Setting{
		Key: key, Default: def, Help: help, Want: strings.Join(values[:len(values)-1], ", ") + " or " + values[len(values)-1],
		set: func(c *Config, v string) error {
			if !slices.Contains(values, v) {
				return errWant
			}
			put(c, v)
			return nil
		},
	}.named(flagOf(key))
}

func list(key, def, want, flag string, check func(string) error, field func(*Config) *[]string, help string) Setting {
	return Setting{
		Key: key, Default: def, Help: help, Want: want, Kind: List, shown: isPlain,
		clear: func(c *Config) { *field(c) = nil },
		set: func(c *Config, v string) error {
			if err := check(v); err != nil {
				return err
			}
			*field(c) = append(*field(c), v)
			return nil
		},
	}.named(flag)
}

// mayBeEmpty reports whether a list without items is a value.
func (s Setting) mayBeEmpty() bool { return s.clear != nil && s.Default == "" }

// numbers gives each queue a number, which is called what.
func numbers(key, def, what, flag string, most int, field func(*Config) *map[string]int, help string) Setting {
	return Setting{
		Key: key, Default: def, Help: help, Want: fmt.Sprintf(`a name without {}/?#%%\ and a %s of 1 to %d, as name=%[1]s`, what, most), Kind: Numbers,
		clear: func(c *Config) { *field(c) = nil },
		set: func(c *Config, v string) error {
			name, value, _ := strings.Cut(v, "=")
			n, err := strconv.Atoi(value)
			queues := queue.ServerConfig{Queues: map[string]int{name: 1}} // which knows the rules of names
			if err != nil || n < 1 || n > most || queues.Validate() != nil {
				return errWant
			}
			if _, ok := (*field(c))[name]; ok {
				return fmt.Errorf("%s is there twice", name)
			}
			if *field(c) == nil {
				*field(c) = make(map[string]int)
			}
			(*field(c))[name] = n
			return nil
		},
	}.named(flag)
}

// secret is a setting of the environment alone.
func secret(key string, field func(*Config) *Secret) Setting {
	s := Setting{
		Key: key, Want: "it in the environment",
		private: func(string) bool { return true },
		set: func(c *Config, v string) error {
			*field(c) = Secret(v)
			return nil
		},
	}.named("")
	s.Help = "Only in the environment, as " + s.Env + "."
	return s
}

func dsn(key, def, flag string, field func(*Config) *Secret, help string) Setting {
	return Setting{
		Key: key, Default: def, Help: help, Want: "a path, or postgres://user@host/database",
		private: hasPassword,
		set: func(c *Config, v string) error {
			if strings.TrimSpace(v) == "" {
				return errWant
			}
			*field(c) = Secret(v)
			return nil
		},
	}.named(flag)
}

// passwordIs finds a password in libpq's form (host=db password=secret), which is no URL.
var passwordIs = regexp.MustCompile(`(?i)passw(or)?d\s*=`)

// hostAndPort matches a host or an address, with a port or without.
var hostAndPort = regexp.MustCompile(`^([^:\[\]]+|\[[^\[\]]+\])?(:[0-9]+)?$`)

// plainPort matches the name or address of a server with a port, plainName one without.
var (
	plainPort = regexp.MustCompile(`^([a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\]):[0-9]+$`)
	plainName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
)

// isPlain reports whether a value looks like a server's name or address, with a port or without.
// Clients of other languages write a password behind that: host:6380,password=secret.
func isPlain(value string) bool {
	return plainPort.MatchString(value) || plainName.MatchString(value) || net.ParseIP(value) != nil
}

// isURL reports whether a value is a URL, or a part of one. There may be a password in it.
func isURL(value string) bool { return strings.Contains(value, "://") || strings.Contains(value, "@") }

// hasPassword reports whether a DSN holds a password, or may do so.
func hasPassword(dsn string) bool {
	u, err := url.Parse(dsn)
	if err != nil {
		return true // nothing says where a password in it begins
	}
	if _, ok := u.User.Password(); ok {
		return true
	}
	// The parser takes postgres://user:password:5432/x, where the host is forgotten, for a
	// host. It takes user:password,x:5432 for two hosts.
	for host := range strings.SplitSeq(u.Host, ",") {
		if !hostAndPort.MatchString(host) {
			return true
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || passwordIs.MatchString(dsn) {
		return true
	}
	for key := range query {
		if strings.Contains(strings.ToLower(key), "password") {
			return true
		}
	}
	return false
}

func address(key, def, flag string, field func(*Config) *string, help string) Setting {
	return Setting{
		Key: key, Default: def, Help: help, Want: "host:port or off",
		set: func(c *Config, v string) error {
			if v == "off" {
				*field(c) = ""
				return nil
			}
			host, port, err := net.SplitHostPort(v)
			if err != nil || !isPort(port, 0) || strings.ContainsFunc(host, unicode.IsSpace) {
				return errWant
			}
			*field(c) = v
			return nil
		},
	}.named(flag)
}

// asAddress accepts the address of a server.
func asAddress(v string) error {
	host, port, err := net.SplitHostPort(v)
	if err != nil || host == "" || !isPort(port, 1) || strings.ContainsFunc(host, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("/@,=", r) }) {
		return errWant
	}
	return nil
}

func isPort(text string, least int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= least && n <= 65535
}

// short writes 1h0m0s as 1h.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
