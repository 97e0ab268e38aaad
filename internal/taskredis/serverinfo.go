package taskredis

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Each server writes an entry about itself every few seconds, with the tasks that it runs, and each entry lasts a little
// longer than that. So asynq does it, and its dashboard shows what it finds there.

// Protocol is the number of the way in which this package keeps locks and waiting tasks. A server says it in its entry, since
// servers of different ways must not work on the same queues. The entries of earlier releases have no number.
const Protocol = 2

// A ServerInfo is the entry of a server.
type ServerInfo struct {
	Host        string
	PID         int
	ID          string
	Concurrency int
	Queues      map[string]int // priorities
	Strict      bool
	Status      string // "active", "stopped" or "closed", as asynq's servers have it
	Started     time.Time
	Active      int // number of tasks that it runs

	// Versions are those that the server runs, in words; "" for a server of asynq alone, which does not say.
	Versions string
	// Guarded servers take a task's lock before they run it. All but those of asynq alone do.
	Guarded bool
	// Protocol is what the server has for [Protocol]; 0 if it does not say.
	Protocol int
	// Terms are what the servers of a queue should have alike; nil if the server does not say.
	Terms *Terms
}

func (s *ServerInfo) String() string { return fmt.Sprintf("%s (pid %d)", s.Host, s.PID) }

// name is that of the server in its keys. The braces put both into one slot of a Cluster.
func (s *ServerInfo) name() string {
	return "{" + s.Host + ":" + strconv.Itoa(s.PID) + ":" + s.ID + "}"
}

// A WorkerInfo is the entry of a task that a server runs.
type WorkerInfo struct {
	ID       string // of the task
	Type     string
	Payload  []byte
	Queue    string
	Started  time.Time
	Deadline time.Time // when the attempt has to end
}

// fields are those of asynq's ServerInfo, v0.26.0, and four that asynq skips.
func (s *ServerInfo) fields(started *timestamp, terms *[]byte) []field {
	return []field{
		{1, &s.Host},
		{2, &s.PID},
		{3, &s.ID},
		{4, &s.Concurrency},
		{5, &s.Queues},
		{6, &s.Strict},
		{7, &s.Status},
		{8, started},
		{9, &s.Active},
		{7008, &s.Guarded},
		{7009, &s.Versions},
		{7010, &s.Protocol},
		{7011, terms}, // JSON
	}
}

func (s *ServerInfo) encode() []byte {
	var terms []byte
	if s.Terms != nil {
		terms, _ = json.Marshal(s.Terms) // of texts alone
	}
	return encode(s.fields(timestampOf(s.Started), &terms), nil)
}

func decodeServer(encoded []byte) (*ServerInfo, error) {
	s := &ServerInfo{Queues: make(map[string]int)}
	var started timestamp
	var terms []byte
	if _, err := decode(encoded, s.fields(&started, &terms)); err != nil {
		return nil, fmt.Errorf("taskredis: an entry of a server cannot be read: %w", err)
	}
	s.Started, s.Terms = time.Unix(started.seconds, int64(started.nanos)).UTC(), readTerms(terms)
	return s, nil
}

// encode returns the entry of a task that the server runs: asynq's WorkerInfo, v0.26.0.
func (w *WorkerInfo) encode(s *ServerInfo) []byte {
	return encode([]field{
		{1, &s.Host},
		{2, &s.PID},
		{3, &s.ID},
		{4, &w.ID},
		{5, &w.Type},
		{6, &w.Payload},
		{7, &w.Queue},
		{8, timestampOf(w.Started)},
		{9, timestampOf(w.Deadline)},
	}, nil)
}

// The sets of the keys of all entries, by when they end, in Unix seconds of the clocks of their servers: asynq's tools
// compare them with clocks of their own. They are in slots of their own.
const (
	serversKey = "asynq:servers"
	workersKey = "asynq:workers"
)

var serverScript = script("server")

// WriteServer writes the entry of a server that is guarded, by this engine's [Protocol], and those of the tasks that it
// runs, in place of all that it wrote before. They last for ttl, in whole seconds, unless they are written again.
func WriteServer(ctx context.Context, rdb redis.UniversalClient, s *ServerInfo, workers []WorkerInfo, ttl time.Duration) error {
	entry := *s
	entry.Guarded, entry.Protocol = true, Protocol
	argv := append(make([]any, 0, 2+2*len(workers)), wholeSeconds(ttl), entry.encode())
	for i := range workers {
		argv = append(argv, workers[i].ID, workers[i].encode(s))
	}
	name := s.name()
	keys := []string{serversKey + ":" + name, workersKey + ":" + name}
	end := float64(time.Now().Add(ttl).Unix())
	pipe := rdb.Pipeline()
	pipe.ZAdd(ctx, serversKey, redis.Z{Score: end, Member: keys[0]})
	pipe.ZAdd(ctx, workersKey, redis.Z{Score: end, Member: keys[1]})
	written := serverScript.EvalSha(ctx, pipe, keys, argv...)
	_, err := pipe.Exec(ctx)
	if redis.HasErrorPrefix(written.Err(), "NOSCRIPT") { // err may be that of a full Redis, which takes no more for the sets
		err = serverScript.Run(ctx, rdb, keys, argv...).Err()
	}
	if err != nil {
		return fmt.Errorf("taskredis: write the entry of the server %s: %w", s, err)
	}
	return nil
}

// ClearServer deletes the entries of a server and of its tasks.
func ClearServer(ctx context.Context, rdb redis.UniversalClient, s *ServerInfo) error {
	server, workers := serversKey+":"+s.name(), workersKey+":"+s.name()
	pipe := rdb.Pipeline()
	pipe.ZRem(ctx, serversKey, server)
	pipe.ZRem(ctx, workersKey, workers)
	pipe.Del(ctx, server, workers)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("taskredis: delete the entry of the server %s: %w", s, err)
	}
	return nil
}

// clocksApart is by how much the clocks of a server and of this process may differ.
const clocksApart = time.Hour

// Servers lists the living servers, those of asynq alone among them. A server that was killed or cut off is listed until
// its entry ends, which takes some seconds. Entries that cannot be read are left out, as asynq does.
func Servers(ctx context.Context, rdb redis.UniversalClient) ([]*ServerInfo, error) {
	// The names of servers that were killed stay in the set until one of asynq's tools removes them. So take not all of it.
	since := strconv.FormatInt(time.Now().Add(-clocksApart).Unix(), 10)
	keys, err := rdb.ZRangeByScore(ctx, serversKey, &redis.ZRangeBy{Min: since, Max: "+inf"}).Result()
	if err != nil {
		return nil, fmt.Errorf("taskredis: list servers: %w", err)
	}
	entries, err := Each(ctx, rdb, keys, func(pipe redis.Pipeliner, key string) *redis.StringCmd { return pipe.Get(ctx, key) })
	if err != nil {
		return nil, fmt.Errorf("taskredis: list servers: %w", err)
	}
	var servers []*ServerInfo
	for _, entry := range entries {
		if entry == "" {
			continue // it has ended
		}
		if s, err := decodeServer([]byte(entry)); err == nil {
			servers = append(servers, s)
		}
	}
	return servers, nil
}

// Unguarded returns those of servers that take no locks, with those of their queues that a server which does has, too. They run
// guarded tasks of these without their locks: such is a worker of asynq alone that was not restarted with its fleet.
func Unguarded(servers []*ServerInfo) []*ServerInfo {
	guarded := make(map[string]bool)
	for _, s := range servers {
		for queue := range s.Queues {
			guarded[queue] = guarded[queue] || s.Guarded
		}
	}
	var found []*ServerInfo
	for _, s := range servers {
		if s.Guarded {
			continue
		}
		alike := *s
		alike.Queues = maps.Clone(s.Queues)
		maps.DeleteFunc(alike.Queues, func(queue string, _ int) bool { return !guarded[queue] })
		if len(alike.Queues) > 0 {
			found = append(found, &alike)
		}
	}
	return found
}

// UnguardedAdvice says what to do about an unguarded server.
const UnguardedAdvice = "it runs guarded tasks of these queues without their locks: pause the queues, stop it, and resume them"
