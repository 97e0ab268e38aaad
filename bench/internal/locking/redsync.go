package locking

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redsyncClient struct {
	*redsync.Redsync

	nodes   []*redis.Client
	options []redsync.Option
}

// Redsync returns a client of redsync on nodes, which it closes. Each acquisition has a Mutex
// with these options.
func Redsync(nodes []*redis.Client, options ...redsync.Option) Client {
	var pools []redsyncredis.Pool
	for _, node := range nodes {
		pools = append(pools, goredis.NewPool(node))
	}
	return redsyncClient{redsync.New(pools...), nodes, options}
}

func (c redsyncClient) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	m := c.NewMutex(name, c.options...)
	for {
		err := m.LockContext(ctx)
		var taken *redsync.ErrTaken
		var split *redsync.ErrNodeTaken
		switch {
		case err == nil:
			return func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}, nil
		case ctx.Err() != nil || !errors.As(err, &taken) && !errors.As(err, &split):
			return nil, err
		}
		// redsync gave up after its 32 tries: try again.
	}
}

func (c redsyncClient) Close() error { return CloseNodes(c.nodes) }

// Nodes opens a client of each Redis at addrs, with these options.
func Nodes(addrs []string, options redis.Options) []*redis.Client {
	var nodes []*redis.Client
	for _, addr := range addrs {
		options.Addr = addr
		node := options // go-redis keeps, and changes, what it is given
		nodes = append(nodes, redis.NewClient(&node))
	}
	return nodes
}

// CloseNodes closes all.
func CloseNodes(nodes []*redis.Client) error {
	var all []error
	for _, node := range nodes {
		all = append(all, node.Close())
	}
	return errors.Join(all...)
}
