package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sidingq/siding/internal/cli"
	"github.com/sidingq/siding/internal/testenv/expect"
	"github.com/sidingq/siding/lock"
	"github.com/sidingq/siding/queue"
)

// losesAnswer passes connections on to a server. Once it has seen a call with all these words it ends the connection in place of the answer,
// if that is not a refusal.
func losesAnswer(t *testing.T, addr string, words ...string) (through string, lost *atomic.Bool) {
	t.Helper()
	listener := expect.Value(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	lost = new(atomic.Bool)
	serve := func(client net.Conn) {
		defer func() { _ = client.Close() }()
		server, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return
		}
		defer func() { _ = server.Close() }()
		var mu sync.Mutex
		var calls bytes.Buffer // since the last answer
		go func() {
			defer func() { _ = server.Close() }()
			pass(server, client, func(part []byte) bool {
				mu.Lock()
				defer mu.Unlock()
				calls.Write(bytes.ToLower(part))
				return true
			})
		}()
		pass(client, server, func(answer []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			found := !bytes.HasPrefix(answer, []byte("-"))
			for _, word := range words {
				found = found && bytes.Contains(calls.Bytes(), []byte(word))
			}
			calls.Reset()
			return !found || !lost.CompareAndSwap(false, true)
		})
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(client)
		}
	}()
	return listener.Addr().String(), lost
}

// pass passes on what it reads until it fails, or goOn says no.
func pass(to, from net.Conn, goOn func([]byte) bool) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil || !goOn(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// The error of a change names the Redis that refuses it.
func TestRedisRefusesAChange(t *testing.T) {
	t.Parallel()
	b := stopped(t)
	b.enqueue(t, "later", "order:2", queue.Options{Delay: time.Hour})
	expect.OK(t, b.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	for _, line := range []string{"run first", "archive first --reason drill --yes", "run later", "archive later --reason drill --yes", "delete later --reason drill --yes"} {
		b.says(t, "", line, cli.StatusFault, "lockctl: redis "+b.at.Addr+": task \""+strings.Fields(line)[1]+"\": …NOREPLICAS")
	}
}

// A change whose answer is lost is sent again by go-redis. It has been made, and the program says so.
func TestAnswerToAChangeIsLost(t *testing.T) {
	t.Parallel()
	stops := queue.Options{Retries: queue.NoRetries, Policy: &queue.Policy{OnFailure: queue.OnFailureStop}}
	for line, tt := range map[string]struct {
		words []string // of the call
		says  string
	}{
		"run later":                                {[]string{"eval", "{default}:pending"}, "later is pending"},
		"archive later --reason drill --yes":       {[]string{"eval", "{default}:archived"}, "later is archived"},
		"delete later --reason drill --yes":        {[]string{"eval", "{default}:groups"}, "later is deleted"},
		"archive first --reason drill --yes":       {[]string{"eval", "\r\nskip\r\n"}, "first is archived"},
		"run first":                                {[]string{"eval", "\r\nretry\r\n"}, "first is retried"},
		"queue pause default --reason drill --yes": {[]string{"set", "{default}:paused"}, "default: paused"},
		"queue resume default":                     {[]string{"del", "{default}:paused"}, "default: resumed"},
		"limit unset order:1":                      {[]string{"hdel"}, "order:1: no limit is set any more"},
		"limit set order:1 3 --reason drill":       {[]string{"eval", "drill"}, "order:1: at most 3 holders"},
		"release order:9 --reason drill --yes":     {[]string{"eval", "drill"}, "order:9"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t)
			ctx := context.WithoutCancel(t.Context())
			b.enqueue(t, "later", "order:2", queue.Options{Delay: time.Hour})
			switch words := strings.Fields(line); words[0] + " " + words[1] {
			case "archive first", "run first":
				b.fail.Store("first", errors.New("no such order"))
				b.enqueue(t, "first", "order:1", stops)
				b.serve(t)
				b.awaitLine(t, 0)
				b.fail.Delete("first") // it succeeds at once, and is gone before the second copy comes
			case "release order:9":
				locks := expect.Value(lock.New(lock.Redis(b.rdb), lock.Config{}))(t)
				expect.OK(t, expect.Err(locks.Acquire(ctx, "order:9", nil)))
			case "queue resume":
				b.says(t, "", "queue pause default --reason drill --yes", cli.StatusOK, "paused")
			case "limit unset":
				b.says(t, "", "limit set order:1 2 --reason drill", cli.StatusOK, "order:1")
			}
			through, lost := losesAnswer(t, b.at.Addr, tt.words...)
			have := runIn(ctx, []string{"SIDING_REDIS_ADDRS=" + through}, "", strings.Fields(line)...)
			expect.That(t, lost.Load(), "want an answer lost")
			expect.That(t, have.status == cli.StatusOK && strings.Contains(have.out, tt.says), "want %q, have %+v", tt.says, have)
		})
	}
}
