package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"

	"github.com/sidingq/siding/bench/internal/contest"
	"github.com/sidingq/siding/bench/internal/redisstat"
	"github.com/sidingq/siding/bench/node"
)

// writeSetting says what is measured, and on what.
func (b *bench) writeSetting(ctx context.Context, w io.Writer) error {
	programs, err := b.programs(ctx)
	if err != nil {
		return err
	}
	packages, err := node.Versions()
	if err != nil {
		return err
	}
	lines := []string{fmt.Sprintf("%s, %d CPUs, %d rounds, scale %v, at most %v for each run",
		strings.Join(programs, ", "), runtime.NumCPU(), b.rounds, b.scale, b.limit)}
	lines = append(lines, "  network: "+b.network.String())
	for _, c := range b.contenders {
		var from []string
		for _, module := range c.modules {
			version := cmp.Or(contest.Version(module), packages[module])
			from = append(from, strings.TrimSpace(module+" "+version))
		}
		lines = append(lines, fmt.Sprintf("  %s: %s; %s", c.name, strings.Join(from, ", "), c.config))
	}
	for _, s := range b.scenarios {
		lines = append(lines, fmt.Sprintf("  %s: %s", s.name, s.about))
	}
	_, err = fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// programs returns the versions of those that take part.
func (b *bench) programs(ctx context.Context) ([]string, error) {
	server, err := redisstat.Version(ctx)
	if err != nil {
		return nil, err
	}
	all := []string{server, runtime.Version()}
	if b.postgres != nil {
		version, err := b.postgres.Version(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, "PostgreSQL "+version)
	}
	if b.node != "" {
		out, err := exec.CommandContext(ctx, "node", "--version").Output()
		if err != nil {
			return nil, err
		}
		all = append(all, "Node "+strings.TrimSpace(string(out)))
	}
	return all, nil
}
