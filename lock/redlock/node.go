package redlock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/store"
)

// Each script is one file with its own contract at the top; server.lua is what they share.
var (
	//go:embed server.lua
	serverSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed release.lua
	releaseSource string

	acquireScript = redis.NewScript(serverSource + acquireSource)
	renewScript   = redis.NewScript(serverSource + renewSource)
	releaseScript = redis.NewScript(serverSource + releaseSource)
)

// released ends the name of the key that keeps what was released last. It is no resource's.
const released = "{siding:released}"

var (
	errReply = errors.New("unexpected reply of a script")
	errYoung = errors.New("started too short a time ago to vote, as it may have forgotten locks")
)

// A node is one of the servers that vote.
type node struct {
	voter

	name string // for errors
}

// A voter has one vote in each question; an error is none.
type voter interface {
	// Acquire votes for request.Token by taking the lock for it, if it is free or that token's
	// already. After a restart it does not vote for as long as delay.
	Acquire(ctx context.Context, request store.Request, delay time.Duration) (vote, error)
	// Renew gives a lock that is token's another ttl.
	Renew(ctx context.Context, key, token string, ttl time.Duration) (vote, error)
	// Release deletes a lock that is token's.
	Release(ctx context.Context, key, token string) (vote, error)
}

// A vote is what one node has said. Yes is that the lock is the token's or, of a release,
// was.
type vote struct {
	run    string // of which server
	yes    bool
	holder string        // if it is busy: whose the lock is
	left   time.Duration // and for how long; below zero for ever
}

// A server is a voter on Redis.
type server struct{ rdb redis.Scripter }

func (s server) Acquire(ctx context.Context, request store.Request, delay time.Duration) (vote, error) {
	return voteOf(acquireScript.Run(ctx, s.rdb, []string{request.Key}, request.Token, request.TTL.Milliseconds(), uptime(delay)))
}

func (s server) Renew(ctx context.Context, key, token string, ttl time.Duration) (vote, error) {
	return voteOf(renewScript.Run(ctx, s.rdb, []string{key}, token, ttl.Milliseconds()))
}

func (s server) Release(ctx context.Context, key, token string) (vote, error) {
	return voteOf(releaseScript.Run(ctx, s.rdb, []string{key, key + released}, token))
}

// uptime is how many whole seconds a server that has run for longer than delay must show. The
// server takes the difference of two times that are rounded down.
func uptime(delay time.Duration) int64 {
	if delay < 0 {
		return 0
	}
	return int64((delay+time.Second-1)/time.Second) + 1
}

// The answers of a script about the lock.
const (
	saysYoung = -1
	saysNo    = 0
	saysYes   = 1
)

// voteOf reads the answer of a script.
func voteOf(cmd *redis.Cmd) (v vote, _ error) {
	fields, err := cmd.Slice()
	if err != nil {
		return v, err
	}
	text := func(i int) string { s, _ := at(fields, i).(string); return s }
	number := func(i int) int64 { n, _ := at(fields, i).(int64); return n }
	says, ok := at(fields, 1).(int64)
	if v.run = text(0); v.run == "" || !ok {
		return v, fmt.Errorf("%w: %d fields, of which the first two are %T and %T", errReply, len(fields), at(fields, 0), at(fields, 1))
	}
	switch says {
	case saysYes:
		v.yes = true
	case saysNo:
		const longest = math.MaxInt64 / int64(time.Millisecond) // 292 years; more is no [time.Duration]
		v.holder, v.left = text(2), time.Duration(min(number(3), longest))*time.Millisecond
	case saysYoung:
		return v, fmt.Errorf("%w: %d s", errYoung, number(2))
	default:
		return v, fmt.Errorf("%w: %d", errReply, says)
	}
	return v, nil
}

func at(fields []any, i int) any {
	if i < len(fields) {
		return fields[i]
	}
	return nil
}

// infoField returns a field of what INFO says; "" if it is not there.
func infoField(info, name string) string {
	_, rest, _ := strings.Cut("\n"+info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}
