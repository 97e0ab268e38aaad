package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/testenv/redistest"
	"github.com/sidingq/siding/lock"
)

// TestCluster lives whole lives on three masters: a script whose keys lie in
// two slots is refused there.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	client := cluster.Client(t)
	ctx := t.Context()
	for i := range 30 {
		s := setUp(t, client, lock.Config{}).on(fmt.Sprintf("order:%d", i))
		slot := client.ClusterKeySlot(ctx, s.key).Val()
		for _, companion := range []string{s.fence, s.row} {
			if have := client.ClusterKeySlot(ctx, companion).Val(); have != slot {
				t.Errorf("want %s in slot %d, have %d", companion, slot, have)
			}
		}

		held := s.take("")
		if err := held.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		s.join(names(3)...)
		s.handOff(held, "w1")
		s.leave("w1")
		s.wantNext("w2")
		second := s.take("w2")
		if second.Fence() <= held.Fence() {
			t.Errorf("want a fence above %d, have %d", held.Fence(), second.Fence())
		}
		if err := held.Renew(ctx); !errors.Is(err, lock.ErrLost) {
			t.Errorf("want ErrLost, have %v", err)
		}
		if n := client.Exists(ctx, s.key).Val() + client.Exists(ctx, s.fence).Val() + client.Exists(ctx, s.row).Val(); n != 3 {
			t.Errorf("want three keys of these names, have %d", n)
		}
		s.leave("w3")
		s.release(second)
	}
	for _, node := range cluster.Nodes {
		if n := node.Client(t).DBSize(ctx).Val(); n == 0 {
			t.Errorf("want locks on all masters, have none on %s", node.Addr)
		}
	}
}

// Locks on all masters are taken at once, all or none.
func TestDoAllInACluster(t *testing.T) {
	t.Parallel()
	s := setUp(t, redistest.StartCluster(t, 3).Client(t), lock.Config{})
	var resources []string
	for i := range 16 {
		resources = append(resources, fmt.Sprintf("order:%d", i))
	}
	for _, opts := range []*lock.Options{nil, {Wait: time.Minute}} {
		err := s.DoAll(s.Context(), resources, opts, func(ctx context.Context) error {
			for _, r := range resources {
				if lock.Fence(ctx, r) == 0 || s.on(r).value() == "" { //nolint:contextcheck // it reads the key
					t.Errorf("%s: want it held", r)
				}
			}
			if err := s.stranger().DoAll(s.Context(), append(resources[:15:15], "free"), nil, noWork); !errors.Is(err, lock.ErrBusy) { //nolint:contextcheck // another process
				t.Errorf("want ErrBusy, have %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for _, r := range append(resources, "free") {
			if have := s.on(r).value(); have != "" {
				t.Errorf("%s: want it free, have %s", r, have)
			}
		}
	}
}

func noWork(context.Context) error { return nil }
