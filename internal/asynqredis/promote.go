package asynqredis

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed waits.lua
	waitsSource string
	//go:embed call.lua
	callSource string
	//go:embed promote.lua
	promoteSource string
	//go:embed summon.lua
	summonSource string

	promoteScript = ownScript(bellSource + waitsSource + callSource + promoteSource)
)

// Summon is what redisstore.Calling calls parked tasks with.
func Summon() string { return bellSource + waitsSource + callSource + attemptSource + summonSource }

// A Promotion is what became of a call.
type Promotion string

// The outcomes of [Promote].
const (
	Called Promotion = "called" // it is at the head of pending, or at least in pending
	Noted  Promotion = "noted"  // still active; it goes to the head of pending when it parks
	Paused Promotion = "paused" // its queue is paused
	Gone   Promotion = "gone"   // it does not wait under this ticket: deleted, archived, or in its own back-off
)

// Promote calls the task that was parked under ticket.
func Promote(ctx context.Context, rdb redis.Scripter, queue, id string, ticket int64) (Promotion, error) {
	got, err := promoteScript.Run(ctx, rdb,
		[]string{taskKey(queue, id), retryKey(queue), pendingKey(queue), pausedKey(queue), bellKey(queue)},
		id, strconv.FormatInt(ticket, 10), time.Now().UnixNano()).Text()
	if err != nil {
		return "", fmt.Errorf("asynqredis: promote %s: %w", id, err)
	}
	return Promotion(got), nil
}
