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
