package redisstat

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Version returns that of redis-server, such as "Redis 7.0.15".
func Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask redis-server for its version: %w", err)
	}
	_, rest, _ := strings.Cut(string(out), "v=")
	number, _, _ := strings.Cut(rest, " ")
	return "Redis " + number, nil
}
