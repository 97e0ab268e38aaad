package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sidingq/siding/internal/asynqredis"
)

const (
	// tolerated is how far the clocks of Redis and of a worker may be apart. asynq
	// compares times of the one with times of the other in whole seconds.
	tolerated = time.Second
	// Redis 6.2 has ZRANGE BYSCORE, by which asynq archives a task. Siding's own
	// scripts need it for ZMSCORE.
	leastMajor, leastMinor = 6, 2
)

// A Finding is what [CheckRedis] says of one trait of a Redis server.
type Finding struct {
	// Server is the address of the master in a Cluster, else empty.
	Server string
	// Trait is a setting of Redis, or "clock", "persistence", "version" or "unguarded server".
	Trait string
	// Have is what it is now; empty when Redis does not tell.
	Have string
	// Advice says what may happen and what to do about it; empty when Redis does
	// not tell.
	Advice string
}

// CheckRedis looks for what would make a Redis lose tasks or locks: a policy that
// evicts them, no persistence, a clock that differs from this machine's, a
// version that is too old. It returns a finding for each of these, and one without
// advice for what could not be checked because the user may not ask (CONFIG GET
// is forbidden at many providers; INFO then says a part of it). Nothing
// found, nothing returned. Of a Cluster each master is asked.
//
// It also returns a finding for each asynq server without a guard that serves a queue of a server
// with one: guarded tasks that it takes run without their locks. A server that was killed is
// reported for 10 s more, and one whose guard is of a release that did not look for
// unguarded servers is reported as well.
//
// The error is that of a Redis that does not answer; what was found up to then is
// returned, too. It changes nothing in Redis and takes four round trips.
func CheckRedis(ctx context.Context, rdb redis.UniversalClient) ([]Finding, error) {
	found, err := checkMasters(ctx, rdb)
	if err != nil {
		return found, fmt.Errorf("queue: check redis: %w", err)
	}
	servers, err := checkServers(ctx, rdb)
	if err != nil {
		return found, fmt.Errorf("queue: check redis: %w", err)
	}
	return append(found, servers...), nil
}

// checkServers looks for servers that run guarded tasks without their locks.
func checkServers(ctx context.Context, rdb redis.UniversalClient) ([]Finding, error) {
	const trait = "unguarded server"
	servers, err := asynqredis.Servers(ctx, rdb)
	if refusedByRedis(err) {
		return []Finding{{Trait: trait}}, nil
	}
	var found []Finding
	for _, s := range unguarded(servers, func(string) bool { return true }) {
		have := fmt.Sprintf("%v, queues: %s", s, strings.Join(s.Queues, ", "))
		found = append(found, Finding{Trait: trait, Have: have, Advice: unguardedAdvice})
	}
	return found, err
}

// checkMasters looks at Redis itself, at each master of a Cluster.
func checkMasters(ctx context.Context, rdb redis.UniversalClient) ([]Finding, error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return checkServer(ctx, rdb)
	}
	var mu sync.Mutex
	var all []Finding
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		found, err := checkServer(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		for _, f := range found {
			f.Server = master.Options().Addr
			all = append(all, f)
		}
		return err
	})
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.Server, b.Server) })
	return all, err
}

func checkServer(ctx context.Context, rdb redis.UniversalClient) ([]Finding, error) {
	asked := time.Now()
	at, err := rdb.Time(ctx).Result()
	answered := time.Now()
	if err != nil && !refusedByRedis(err) {
		return nil, err
	}
	var found []Finding
	if err != nil {
		found = append(found, Finding{Trait: "clock"})
	} else {
		found = append(found, checkClock(asked, at, answered)...)
	}
	traits, err := traitsOf(ctx, rdb)
	if err != nil {
		return found, err
	}
	return append(found, traits.check()...), nil
}

// refusedByRedis reports whether Redis answered, and would not do it.
func refusedByRedis(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// checkClock compares a time that Redis told between asked and answered.
func checkClock(asked, at, answered time.Time) []Finding {
	// Redis read its clock at some moment between the two, which is not held
	// against it.
	off, way := at.Sub(answered), "ahead of"
	if behind := asked.Sub(at); behind > off {
		off, way = behind, "behind"
	}
	if off <= tolerated {
		return nil
	}
	return []Finding{{
		Trait: "clock",
		Have:  fmt.Sprintf("%v %s this machine's", off.Round(time.Millisecond), way),
		Advice: "timers fire too early or too late, and tasks that still run may be taken for those of a dead worker: " +
			"keep both clocks by NTP",
	}}
}

// traits are what INFO and CONFIG GET say, by the names of both. A trait that
// Redis does not tell is absent.
type traits map[string]string

func traitsOf(ctx context.Context, rdb redis.UniversalClient) (traits, error) {
	pipe := rdb.Pipeline()
	info := pipe.Info(ctx)
	var configs []*redis.MapStringStringCmd
	// One pattern each: several in one call are for Redis 7 and newer.
	for _, pattern := range []string{"maxmemory*", "append*", "save"} {
		configs = append(configs, pipe.ConfigGet(ctx, pattern))
	}
	if _, err := pipe.Exec(ctx); err != nil && !refusedByRedis(err) {
		return nil, err
	}
	t := make(traits)
	for line := range strings.Lines(info.Val()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			t[name] = value
		}
	}
	// What INFO tells under other names.
	if policy, ok := t["maxmemory_policy"]; ok {
		t["maxmemory-policy"] = policy
	}
	switch t["aof_enabled"] {
	case "0":
		t["appendonly"] = "no"
	case "1":
		t["appendonly"] = "yes"
	}
	for _, config := range configs {
		maps.Copy(t, config.Val())
	}
	return t, nil
}

func (t traits) check() []Finding {
	return slices.Concat(t.checkVersion(), t.checkEviction(), t.checkPersistence())
}

func (t traits) checkVersion() []Finding {
	have, ok := t["redis_version"]
	major, rest, _ := strings.Cut(have, ".")
	minor, _, _ := strings.Cut(rest, ".")
	ma, err := strconv.Atoi(major)
	mi, err2 := strconv.Atoi(minor)
	if !ok || err != nil || err2 != nil {
		return []Finding{{Trait: "version"}}
	}
	if ma > leastMajor || ma == leastMajor && mi >= leastMinor {
		return nil
	}
	return []Finding{{Trait: "version", Have: have, Advice: fmt.Sprintf(
		"it lacks commands that asynq and Siding send: use Redis %d.%d or newer", leastMajor, leastMinor)}}
}

func (t traits) checkEviction() []Finding {
	policy, known := t["maxmemory-policy"]
	limit, limitKnown := t["maxmemory"]
	switch {
	case !known || policy == "":
		return []Finding{{Trait: "maxmemory-policy"}}
	case policy == "noeviction" || limitKnown && limit == "0":
		return nil
	}
	what := "locks and tasks"
	if strings.HasPrefix(policy, "volatile-") {
		what = "locks, all of which have an expiry,"
	}
	return []Finding{{Trait: "maxmemory-policy", Have: policy, Advice: "once maxmemory is reached, Redis throws away " + what +
		" to make room: set maxmemory-policy noeviction"}}
}

func (t traits) checkPersistence() []Finding {
	aof, aofKnown := t["appendonly"]
	save, saveKnown := t["save"]
	fsync, fsyncKnown := t["appendfsync"]
	switch {
	case aof == "yes" && fsync == "no":
		return []Finding{{Trait: "appendfsync", Have: fsync, Advice: "a crash of the machine loses whatever the system has not " +
			"written by then, some 30 s: set appendfsync everysec"}}
	case aof == "yes" && !fsyncKnown:
		return []Finding{{Trait: "appendfsync"}}
	case aof == "yes" || save != "":
		return nil
	case !aofKnown || !saveKnown:
		return []Finding{{Trait: "persistence"}}
	}
	return []Finding{{Trait: "persistence", Have: "off", Advice: "a Redis that restarts has lost all tasks: set appendonly yes"}}
}
