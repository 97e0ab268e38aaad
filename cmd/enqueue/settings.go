package main

import "github.com/sidingq/siding/internal/config"

// settings returns where Redis is and which queues have shards. The flag, the environment, the file
// or the default says so, in this order.
func (a *app) settings() (config.Config, error) {
	var overrides []config.Override
	if a.flags.redis != "" {
		overrides = append(overrides, config.Override{Flag: "redis", Value: a.flags.redis})
	}
	return config.Sources{File: a.flags.config, Environ: a.environ, Flags: overrides}.Load()
}
