//go:build unix

// Command example shows a late write, and the fence that refuses it. A worker process takes a task,
// reads the stock, and is stopped by SIGSTOP just before it writes. Its lock expires. Another worker
// process sells from the same stock. Then the first one goes on by SIGCONT, where it was:
//
//	go run ./lock/sqlfence/example
//	go run ./lock/sqlfence/example -unfenced
//
// Fenced, the late write is refused. Unfenced, it undoes a sale of the other worker, which has run that task again and the next
// one. The example needs nothing but Go: its Redis is in memory, and its
// database is a file of SQLite.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/embedded"
	"github.com/sidingq/siding/queue"
)

// patience is how long the example waits for one thing that must happen.
const patience = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		slog.Error("the example has failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.SetOutput(out)
	unfenced := flags.Bool("unfenced", false, "write without a check of the fence")
	worker := flags.String("worker", "", "be a worker of the example, by this `name`")
	redisAddr := flags.String("redis", "", "the worker's Redis, `host:port`")
	file := flags.String("database", "", "the worker's database, a `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *worker == "" {
		return perform(ctx, *unfenced, out)
	}
	shop, err := openShop(*file, *unfenced)
	if err != nil {
		return err
	}
	defer shop.db.Close()
	return work(ctx, *worker, *redisAddr, shop, in, out)
}

// perform starts a Redis and makes a database, lets the late write happen, and shows what became of
// the stock.
func perform(ctx context.Context, unfenced bool, out io.Writer) error {
	server, err := embedded.Start(embedded.Config{Port: embedded.AnyPort}) // stands for your own
	if err != nil {
		return err
	}
	defer server.Close()
	folder, err := os.MkdirTemp("", "fence")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "shop.db")
	shop, err := openShop(file, unfenced)
	if err != nil {
		return err
	}
	defer shop.db.Close()
	if err := shop.create(ctx, sku); err != nil {
		return err
	}
	left, err := lateWrite(ctx, shop, server.Addr(), file, &story{out: out, lines: make(chan string)})
	if err != nil {
		return err
	}
	const want = opening - first - second
	verdict := "right"
	if left != want {
		verdict = fmt.Sprintf("wrong: sales of %d and %d leave %d of %d", first, second, want, opening)
	}
	_, err = fmt.Fprintf(out, "%d pieces are left, which is %s\n", left, verdict)
	return err
}

// What the two tasks sell, and of what.
const (
	sku    = "85123A"
	first  = 3
	second = 4
)

// lateWrite has two workers sell. The first one is stopped until the other has written. lateWrite
// returns how many pieces are left.
func lateWrite(ctx context.Context, shop *shop, redisAddr, file string, s *story) (left int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer s.tells.Wait()
	defer cancel() // kills the workers
	rdb := queue.Redis(&redis.UniversalOptions{Addrs: []string{redisAddr}})
	defer rdb.Close()
	client, err := queue.NewClient(rdb, queue.ClientConfig{})
	if err != nil {
		return 0, err
	}
	sell := func(pieces int) error {
		_, err := client.Enqueue(ctx, Sell{SKU: sku, Pieces: pieces}, nil)
		return err
	}
	args := []string{fmt.Sprintf("-unfenced=%t", shop.unfenced), "-redis", redisAddr, "-database", file}

	one, err := s.start(ctx, "Worker 1", args...)
	if err != nil {
		return 0, err
	}
	if err := sell(first); err != nil {
		return 0, err
	}
	if err := s.await(ctx, "Worker 1 sells"); err != nil {
		return 0, err
	}
	if err := one.stop(); err != nil {
		return 0, err
	}
	s.tell("Worker 1 is stopped by SIGSTOP, just before it writes")

	two, err := s.start(ctx, "Worker 2", args...)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(two.mayWrite(), sell(second)); err != nil {
		return 0, err
	}
	// When the lock of the stopped worker has expired, its task runs again, and then the second one.
	for range 2 {
		if err := s.await(ctx, "Worker 2 has written"); err != nil {
			return 0, err
		}
	}

	s.tell("Worker 1 goes on by SIGCONT")
	if err := errors.Join(one.mayWrite(), one.goOn()); err != nil {
		return 0, err
	}
	late := "Worker 1 is refused"
	if shop.unfenced {
		late = "Worker 1 has written"
	}
	if err := s.await(ctx, late); err != nil {
		return 0, err
	}
	return shop.onHand(ctx, sku)
}
