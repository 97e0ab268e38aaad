package main

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/sidingq/siding/bench/internal/locking"
)

// A sessionClient has a session for each acquisition, as the session is the holder. Two goroutines
// with the same one would both get the lock.
type sessionClient struct{ *clientv3.Client }

func openSession(_ context.Context, addrs []string) (locking.Client, error) {
	client, err := newEtcd(addrs)
	if err != nil {
		return nil, err
	}
	return sessionClient{client}, nil
}

func (c sessionClient) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	session, err := concurrency.NewSession(c.Client, concurrency.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(session, name)
	if err := m.Lock(ctx); err != nil {
		session.Orphan() // to close it would wait for an etcd that is gone
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := m.Unlock(ctx); err != nil {
			session.Orphan()
			return err
		}
		return session.Close()
	}, nil
}

// A sharedClient has one session for all goroutines. A turnstile for each name lets one goroutine
// through at a time.
type sharedClient struct {
	client  *clientv3.Client
	session *concurrency.Session

	mu         sync.Mutex
	turnstiles map[string]chan struct{} // full while somebody is inside
}

func openSharedSession(_ context.Context, addrs []string) (locking.Client, error) {
	client, err := newEtcd(addrs)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &sharedClient{client: client, session: session, turnstiles: make(map[string]chan struct{})}, nil
}

func (c *sharedClient) turnstile(name string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.turnstiles[name]
	if t == nil {
		t = make(chan struct{}, 1)
		c.turnstiles[name] = t
	}
	return t
}

func (c *sharedClient) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	t := c.turnstile(name)
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	m := concurrency.NewMutex(c.session, name)
	if err := m.Lock(ctx); err != nil {
		<-t
		return nil, err
	}
	return func(ctx context.Context) error {
		defer func() { <-t }()
		return m.Unlock(ctx)
	}, nil
}

// Close leaves the session to its end, as to close it would wait for an etcd that is gone.
func (c *sharedClient) Close() error {
	c.session.Orphan()
	return c.client.Close()
}
