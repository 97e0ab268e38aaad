package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/sidingq/siding/internal/testenv/etcdtest"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/lock/etcdlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExample(t *testing.T) {
	t.Parallel()
	verify.Long(t)
	servers := etcdtest.StartCluster(t, 3)
	var out strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := []string{"-etcd", strings.Join(etcdtest.Addrs(servers...), ","), "-sales", "12", "-items", "2"}
	for range 2 { // what is left of the first run is in the second one's way
		if err := run(ctx, args, &out); err != nil {
			t.Fatal(err)
		}
	}
	if have := strings.Count(out.String(), "12 sales of 2 items"); have != 2 || strings.Contains(out.String(), " 0 times") {
		t.Errorf("want two reports of 12 sales, some of which were parked, have:\n%s", out.String())
	}
}

// TestLateSale: a sale is refused whose lock is somebody else's by now, although its
// holder has not noticed.
func TestLateSale(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	l := &ledger{client: client, locks: etcdlock.New(client)}
	locker, err := lock.New(l.locks, lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locker.Close)
	if err := l.open(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	err = locker.Do(t.Context(), Sell{Item: "a"}.Resource(), nil, func(ctx context.Context) error {
		if first, err := l.sell(ctx, "1", Sell{Item: "a", Quantity: 2}); !first || err != nil {
			t.Errorf("want it sold, have %t, %v", first, err)
		}
		if first, err := l.sell(ctx, "1", Sell{Item: "a", Quantity: 2}); first || err != nil {
			t.Errorf("want it sold once, have %t, %v", first, err)
		}
		owner, err := l.locks.Owner(ctx, Sell{Item: "a"}.Resource())
		if err != nil {
			return err
		}
		if _, err := client.Delete(ctx, owner.Key); err != nil {
			return err
		}
		if first, err := l.sell(ctx, "2", Sell{Item: "a", Quantity: 2}); first || !errors.Is(err, lock.ErrLost) {
			t.Errorf("want ErrLost, have %t, %v", first, err)
		}
		return nil
	})
	if !errors.Is(err, lock.ErrLost) {
		t.Errorf("want ErrLost, have %v", err)
	}
	if left, err := l.read(t.Context(), "a"); err != nil || left.OnHand != opening-2 {
		t.Errorf("want %d left, have %+v, %v", opening-2, left, err)
	}
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-sales", "0"}, {"-items", "-1"}, {"-sales", "many"}, {"-etcd", "127.0.0.1:1"}} {
		if err := run(t.Context(), args, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%v: want an error that names %s, have %v", args, args[0], err)
		}
	}
}
