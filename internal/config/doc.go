// Package config reads the settings of Siding's programs.
//
// A setting has its value from the first of these that gives one: a command-line
// flag, an environment variable, the file, its default. What is wrong with a
// value is said with the place it came from:
//
//	config.yaml:14: concurrency: want 1 to 10000, have -3
//	SIDING_CONCURRENCY: want 1 to 10000, have -3
//	--concurrency: want 1 to 10000, have -3
//
// One table, [Settings], is the home of all names, defaults, ranges and
// descriptions. Keys, variables and flags that it does not know are errors: a
// misspelt setting that silently does nothing is worse than a program that does
// not start.
//
// Passwords come from the environment or from files of their own, never from
// the configuration file or the command line, where others may read them.
package config
