package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// tolerated is how far the clocks of Redis and of a worker may be apart. asynq compares times
	// of both in whole seconds.
	tolerated = time.Second
	// Tests run with no older Redis. Siding and asynq send commands of Redis 6.2.
	leastMajor, leastMinor = 7, 0
)

// A Finding is what [CheckRedis] says of one trait of a Redis.
type Finding struct {
	// Server is the address of a master of a Cluster, and empty elsewhere.
	Server string
	// Trait is a setting of Redis, or "clock", "persistence", "version" or "unguarded server"; or, of a Redis that takes no writes
	// now, why it refuses them: "memory", "disk" or "role".
	Trait string
	// Have is the value of the trait, empty if Redis does not tell.
	Have string
	// Advice says what may happen and what to do, empty if Redis does not tell.
	Advice string
}

// CheckRedis returns a finding for each trait by which a Redis may lose tasks or locks: it evicts keys,
// has no persistence, has another time than this machine, or is too old; and for what has it refuse
// writes now: it is full, cannot write to its disk, or is a replica. A trait that the user may not ask
// for has a finding without advice. Many providers forbid CONFIG GET, and INFO then tells a part. In a
// Cluster each master is asked.
//
// There is also a finding for each server that takes no locks and serves a queue of a guarded server. It
// runs guarded tasks without their locks. A server that was killed is reported for 10 s more.
//
// CheckRedis changes nothing in Redis and takes four round trips. If Redis does not answer,
// CheckRedis returns that error, and the findings until then.
func CheckRedis(ctx context.Context, rdb redis.UniversalClient) ([]Finding, error) {
	if err := cmp.Or(checkContext(ctx), checkNil(rdb)); err != nil {
		return nil, err
	}
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

// checkMasters returns the findings for Redis itself, for each master of a Cluster.
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
	var found []Finding
	switch {
	case err == nil:
		found = checkClock(asked, at, answered)
	case refusedByRedis(err):
		found = []Finding{{Trait: "clock"}}
	default:
		return nil, err
	}
	traits, err := traitsOf(ctx, rdb)
	if err != nil {
		return found, err
	}
	return append(found, traits.check()...), nil
}

// checkClock compares a time that Redis told between asked and answered.
func checkClock(asked, at, answered time.Time) []Finding {
	// Redis read its clock at an unknown moment between the two.
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
		Advice: "delayed and parked tasks come too early or too late, and tasks that still run may be taken for those of a dead worker: " +
			"keep both clocks by NTP",
	}}
}

// traits are the answers of INFO and CONFIG GET, by the names of both. A trait that Redis does not
// tell is absent.
type traits map[string]string

func traitsOf(ctx context.Context, rdb redis.UniversalClient) (traits, error) {
	pipe := rdb.Pipeline()
	info := pipe.Info(ctx)
	var configs []*redis.MapStringStringCmd
	// One call each, as go-redis takes one pattern.
	for _, pattern := range []string{"maxmemory*", "append*", "save", "stop-writes*"} {
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
	// INFO has some settings under other names.
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
	return slices.Concat(t.checkVersion(), t.checkWrites(), t.checkEviction(), t.checkPersistence())
}

// checkWrites finds out why Redis refuses writes now, by what INFO says of it.
func (t traits) checkWrites() (found []Finding) {
	const refused = "no task is enqueued, and servers that run may look as if they were dead"
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(t[name], 10, 64)
		return n
	}
	// Redis does not count all that it uses.
	used, limit := number("used_memory")-number("mem_not_counted_for_evict"), number("maxmemory")
	evicts := t["maxmemory-policy"] != "" && t["maxmemory-policy"] != "noeviction" // then it makes room
	if limit > 0 && used >= limit && !evicts {
		found = append(found, Finding{Trait: "memory", Have: fmt.Sprintf("%d of maxmemory %d bytes", used, limit), Advice: "Redis is full, and refuses what needs memory; " +
			refused + ": raise maxmemory, or shorten the retention of tasks"})
	}
	stops, known := t["stop-writes-on-bgsave-error"]
	save, saveKnown := t["save"]
	failed := func(name string) bool { return t[name] != "" && t[name] != "ok" }
	snapshot := failed("rdb_last_bgsave_status") && (!known || stops == "yes") && (!saveKnown || save != "")
	if snapshot || failed("aof_last_write_status") && t["appendonly"] == "yes" {
		what := "append-only file"
		if snapshot {
			what = "snapshot"
		}
		found = append(found, Finding{Trait: "disk", Have: "no " + what + " written", Advice: "the last try failed, and Redis refuses all writes; " + refused +
			": make room on the disk of Redis, or mend the rights of its folder"})
	}
	if role := t["role"]; role != "" && role != "master" {
		found = append(found, Finding{Trait: "role", Have: role, Advice: "a replica refuses all writes; " + refused + ": give the address of the master, or those of the Sentinels"})
	}
	return found
}

func (t traits) checkVersion() []Finding {
	have := t["redis_version"]
	var major, minor int
	if _, err := fmt.Sscanf(have, "%d.%d", &major, &minor); err != nil {
		return []Finding{{Trait: "version"}}
	}
	if major > leastMajor || major == leastMajor && minor >= leastMinor {
		return nil
	}
	return []Finding{{Trait: "version", Have: have, Advice: fmt.Sprintf(
		"Siding is not tested with it, and older ones lack commands: use Redis %d.%d or newer", leastMajor, leastMinor)}}
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
