package config

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// FlagError adds to an error of the command line the flag that an unknown one is close to, or the
// kind of a flag's value.
func FlagError(known *pflag.FlagSet, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok && e.GetSpecifiedShortnames() == "" {
		var names []string
		known.VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		return fmt.Errorf("%w%s", err, suggest("--"+e.GetSpecifiedName(), names))
	}
	e, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	want, ok := map[string]string{"int": "a whole number", "bool": "true or false", "duration": "a duration such as 90s or 1h30m"}[e.GetFlag().Value.Type()]
	if !ok {
		return err
	}
	return fmt.Errorf("--%s: want %s, have %q", e.GetFlag().Name, want, e.GetValue())
}
