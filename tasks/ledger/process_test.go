package ledger_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/internal/verify"
	"github.com/sidingq/siding/lock/locktest"
	"github.com/sidingq/siding/tasks/ledger"
)

// workerEnv makes TestHelperWorker a process that works on this file.
const workerEnv = "LEDGER_TEST_FILE"

const goroutines = 8

// tasksPerProcess is the same in a test and in its processes, which get its environment.
func tasksPerProcess() int {
	if verify.All() {
		return 400
	}
	return 80
}

// TestProcessesShareAFile has two processes create and fill one file. Neither
// may fail because of the other, or lose what the other did.
func TestProcessesShareAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperWorker$")
			cmd.Env = append(os.Environ(), workerEnv+"="+path)
			out, err := cmd.CombinedOutput()
			expect.That(t, err == nil, "worker: %v\n%s", err, out)
		})
	}
	wg.Wait()
	var entries, units int
	row := open(t, path).DB().QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM journal), (SELECT sum(back_ordered) FROM stock)")
	expect.OK(t, row.Scan(&entries, &units))
	want := 2 * tasksPerProcess()
	expect.That(t, entries == want && units == want, "want %d entries and units, have %d and %d", want, entries, units)
}

// TestHelperWorker is no test but one of the processes above. The process has its own stock codes,
// as it takes no lock.
func TestHelperWorker(t *testing.T) {
	t.Parallel()
	path := os.Getenv(workerEnv)
	if path == "" {
		return
	}
	l := expect.Value(create(t.Context(), path))(t)
	var wg sync.WaitGroup
	for g := range goroutines {
		sku := fmt.Sprintf("%d-%d", os.Getpid(), g)
		wg.Go(func() {
			for n := range tasksPerProcess() / goroutines {
				ctx := locktest.WithFence(t.Context(), "sku:"+sku, int64(n)+1)
				s, err := readStock(ctx, l, sku, 0)
				if err == nil {
					s.BackOrdered++
					err = l.Write(ctx, &s, ledger.Effect{TaskID: fmt.Sprintf("%s-%d", sku, n), Kind: "stock:deduct"})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	expect.OK(t, l.Close())
}
