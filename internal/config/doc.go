// Package config reads the settings of Siding's programs.
//
// A setting has its value from the first of these that gives one: a command-line
// flag, an environment variable, the file, its default. An error begins with the place
// of the wrong value:
//
//	config.yaml:14: concurrency: want 1 to 10000, have -3
//	SIDING_CONCURRENCY: want 1 to 10000, have -3
//	--concurrency: want 1 to 10000, have -3
//
// One table, [Settings], has all names, defaults, ranges and descriptions. An unknown key, variable
// or flag is an error. A program that does not start is better than a misspelt setting without
// effect.
//
// Passwords come from the environment or from files of their own. Others may read the
// configuration file and the command line, so no password may be there.
package config
