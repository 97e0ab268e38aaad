package redisstat

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Version returns what redis-server is, such as "Redis 7.0.15" or "Valkey 8.1.1".
func Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask redis-server for its version: %w", err)
	}
	name, rest, _ := strings.Cut(string(out), " server v=")
	number, _, _ := strings.Cut(rest, " ")
	return name + " " + number, nil
}
