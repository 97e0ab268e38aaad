//go:build unix

package chaos

import (
	"context"
	"errors"
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
	has, err := replication(ctx, master)
	if err != nil {
		return err
	}
	follows, err := replication(ctx, replica)
	if err != nil {
		return err
	}
	_, port, _ := strings.Cut(master.Options().Addr, ":")
	if follows["master_port"] != port || follows["master_link_status"] != "up" {
		return fmt.Errorf("replica at %s: does not follow %s", replica.Options().Addr, master.Options().Addr)
	}
	want, err := strconv.Atoi(has["master_repl_offset"])
	have, unknown := strconv.Atoi(follows["slave_repl_offset"])
	if err := errors.Join(err, unknown); err != nil {
		return err
	}
	if have < want {
		return fmt.Errorf("replica at %s: %d behind", replica.Options().Addr, want-have)
	}
	return nil
}

// isMaster returns an error unless the server says that it is one.
func isMaster(ctx context.Context, rdb *redis.Client) error {
	says, err := replication(ctx, rdb)
	if err == nil && says["role"] != "master" {
		err = fmt.Errorf("%s: is no master", rdb.Options().Addr)
	}
	return err
}

func replication(ctx context.Context, rdb *redis.Client) (map[string]string, error) {
	info, err := rdb.InfoMap(ctx, "replication").Result()
	return info["Replication"], err
}
