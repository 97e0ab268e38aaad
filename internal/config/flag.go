package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// FlagError adds to an error of the command line the flag that an unknown one is close to, or says
// what the value of a flag has to be. The error of a flag whose kind it does not know says that itself.
func FlagError(known *pflag.FlagSet, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok && e.GetSpecifiedShortnames() == "" {
		var names []string
		known.VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		return fmt.Errorf("%w%s", err, Suggest("--"+e.GetSpecifiedName(), names))
	}
	if number := negative(err); number != "" {
		return fmt.Errorf("want a flag, or -- before arguments that begin with a minus, have %q", number)
	}
	e, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	name, kind := e.GetFlag().Name, e.GetFlag().Value.Type()
	want := map[string]string{"bool": "true or false", "duration": "a duration such as 90s or 1h30m", "int": "a whole number", "int64": "a whole number"}[kind]
	switch {
	case want == "":
		return fmt.Errorf("--%s: %w", name, e.Unwrap())
	case errors.Is(err, strconv.ErrRange):
		want += " of at most 18 digits"
	}
	return fmt.Errorf("--%s: want %s, have %q", name, want, e.GetValue())
}

// negative returns the argument below 0 that the command line has taken for an unknown flag, such
// as -1; "" if err is another error.
func negative(err error) string {
	e, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || e.GetSpecifiedShortnames() == "" || strings.Trim(e.GetSpecifiedShortnames(), "0123456789") != "" {
		return ""
	}
	return "-" + e.GetSpecifiedShortnames()
}

// AddFlags adds a flag of each setting that has one and is wanted. The values join given, in order. The
// table of settings checks them, once all are known.
func AddFlags(flags *pflag.FlagSet, given *[]Override, want func(Setting) bool) {
	for _, s := range Settings() {
		if s.Flag == "" || !want(s) {
			continue
		}
		flags.Var(&flag{s, given}, s.Flag, s.Help)
		if s.Kind == Bool {
			flags.Lookup(s.Flag).NoOptDefVal = "true"
		}
	}
}

const fileFlag = "config"

// AddFileFlag adds the flag that names the file of settings. An empty name is an error, as of a shell
// variable that is not set: the program would go by other settings without a word.
func AddFileFlag(flags *pflag.FlagSet, path *string, help string) {
	flags.Func(fileFlag, help, func(value string) error {
		if value == "" {
			return errors.New("want the path of a file, have nothing")
		}
		*path = value
		return nil
	})
}

// A flag is a setting on the command line.
type flag struct {
	setting Setting
	given   *[]Override
}

// Set implements pflag.Value.
func (f *flag) Set(value string) error {
	*f.given = append(*f.given, Override{Flag: f.setting.Flag, Value: value})
	return nil
}

// String returns the default, for the help.
func (f *flag) String() string { return f.setting.Default }

// Type returns the word that stands for the value in the help.
func (f *flag) Type() string {
	if f.setting.Key == "http.address" {
		return "host:port"
	}
	return map[Kind]string{Text: "value", Bool: "bool", List: "address", Numbers: "name=number", Limits: "{pattern: limit}", Policies: "{kind: policy}"}[f.setting.Kind]
}
