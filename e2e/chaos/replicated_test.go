//go:build unix

package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/testenv/redistest"
)

// halt takes a master away.
func halt(master *redistest.Server, how Kind) {
	if how == StopMaster {
		master.Pause()
	} else {
		master.Kill()
	}
}

// resume brings it back once it has been replaced.
func resume(ctx context.Context, old *redistest.Server, how Kind) error {
	if how == StopMaster {
		old.Resume()
		return nil
	}
	return old.Revive(ctx)
}

// inStep returns an error unless the replica has what its master has now. A failover then loses no
// more than the last moments.
func inStep(ctx context.Context, master, replica *redis.Client) error {
	_, port, _ := strings.Cut(master.Options().Addr, ":")
	if err := says(ctx, replica, "master_port:"+port+"\r\nmaster_link_status:up"); err != nil {
		return err
	}
	want, err := offset(ctx, master, "master_repl_offset")
	if err != nil {
		return err
	}
	have, err := offset(ctx, replica, "slave_repl_offset")
	if err == nil && have < want {
		err = fmt.Errorf("replica at %s: %d behind", replica.Options().Addr, want-have)
	}
	return err
}

func offset(ctx context.Context, rdb *redis.Client, name string) (int64, error) {
	info, err := rdb.Info(ctx, "replication").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, name+":")
	digits, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", rdb.Options().Addr, name, err)
	}
	return n, nil
}

// says returns an error unless the server's INFO has the lines.
func says(ctx context.Context, rdb *redis.Client, lines string) error {
	info, err := rdb.Info(ctx, "replication").Result()
	if err == nil && !strings.Contains(info, lines) {
		err = fmt.Errorf("%s: does not say %q", rdb.Options().Addr, lines)
	}
	return err
}
