package queue

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
)

// MaxShards is the largest number of asynq queues over which one queue can be spread.
const MaxShards = 1000

// shardSuffix is the length of a shard's name beyond that of its queue.
const shardSuffix = len(".000-aa")

// shardName returns the name of the i-th asynq queue over which a queue is spread, such as
// orders.003-xh. The letters choose the slot of the shard in a Redis Cluster, as names that are only
// numbered would fall unevenly. Each slot is the golden section of all slots beyond that of the shard
// before. So any number of shards is spread evenly over any number of masters. The name depends on
// queue and i alone: with more shards the old ones stay the same.
func shardName(queue string, i int) string {
	const golden = 0x9e3779b9 // of 1<<32
	prefix := fmt.Sprintf("%s.%03d-", queue, i)
	want := (slotOf(0, queue) + uint16(uint32(i)*golden>>16)>>2) % slots //nolint:gosec // i is small, and the rest is to wrap around
	crc := slotCRC(0, prefix)
	best, nearest := "", uint16(slots)
	for a := 'a'; a <= 'z'; a++ {
		for b := 'a'; b <= 'z'; b++ {
			letters := string([]rune{a, b})
			off := (slotOf(crc, letters) - want) % slots
			if off = min(off, slots-off); off < nearest {
				best, nearest = letters, off
			}
		}
	}
	return prefix + best
}

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// slotOf returns the slot of a key or hash tag that has s after a part with the checksum crc.
func slotOf(crc uint16, s string) uint16 { return slotCRC(crc, s) % slots }

// slotCRC returns the CRC-16 by which Redis Cluster chooses slots (XMODEM: polynomial 0x1021).
func slotCRC(crc uint16, s string) uint16 {
	for _, c := range []byte(s) {
		crc ^= uint16(c) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return crc
}

// queueOfShard returns the queue whose shard would have this name, whatever number of shards it
// has.
func queueOfShard(name string) (queue string, ok bool) {
	cut := len(name) - shardSuffix
	if cut < 1 {
		return "", false
	}
	i, err := strconv.Atoi(name[cut+1 : cut+4])
	return name[:cut], err == nil && i >= 0 && shardName(name[:cut], i) == name
}

// shardQueues returns the asynq queues of a server and their weights. These are its queues, and the
// shards of each with the same weight. A sharded queue itself has the tasks that were enqueued
// before it had shards, or by clients that know of none.
func shardQueues(queues, shards map[string]int) map[string]int {
	all := maps.Clone(queues)
	for queue, weight := range queues {
		for i := range shards[queue] {
			all[shardName(queue, i)] = weight
		}
	}
	return all
}

// A sharding knows the shards of each sharded queue.
type sharding struct {
	numbers map[string]int
	names   map[string][]string // of all shards, in order; nil to make one up each time, as making them all takes long
}

func newSharding(shards map[string]int) sharding {
	s := sharding{maps.Clone(shards), make(map[string][]string, len(shards))}
	for queue, n := range shards {
		for i := range n {
			s.names[queue] = append(s.names[queue], shardName(queue, i))
		}
	}
	return s
}

// shardOf returns the asynq queue for the tasks of a queue that have this key. A queue without
// shards keeps them itself. Otherwise the first eight bytes of the key's SHA-256, as a big-endian
// number modulo the number of shards, choose the shard. Other programs may do the same.
func (s sharding) shardOf(queue, key string) string {
	n := s.numbers[queue]
	if n == 0 {
		return queue
	}
	sum := sha256.Sum256([]byte(key))
	i := int(binary.BigEndian.Uint64(sum[:]) % uint64(n)) //nolint:gosec // below MaxShards
	if s.names == nil {
		return shardName(queue, i)
	}
	return s.names[queue][i]
}

// shardKey returns the key that chooses the shard of a task. Tasks of one resource share a shard.
// An unguarded task shares a shard with its duplicate, and with the one that it replaces. The key is the
// kind and payload of a task that is unique, the kind and debounce of one that has a debounce, and the id
// if the caller chose one. Any other task goes to a random shard.
func shardKey(resource, kind string, payload []byte, o Options) string {
	switch {
	case resource != "":
		return resource
	case o.Unique || o.UniqueFor != 0:
		return kind + "\n" + string(payload)
	case o.Debounce != "":
		return kind + "\n" + o.Debounce
	case o.TaskID != "":
		return o.TaskID
	default:
		return strconv.FormatUint(rand.Uint64(), 36)
	}
}

// checkShards returns an error that names the first field that cannot work. A client has no queues.
func checkShards(queues, shards map[string]int) error {
	for _, queue := range slices.Sorted(maps.Keys(shards)) {
		if want := wantName(queue, maxName-shardSuffix); want != "" {
			return fmt.Errorf("queue: shards: want names of %s, have %q", want, clip(queue))
		}
		if n := shards[queue]; n < 1 || n > MaxShards {
			return fmt.Errorf("queue: shards: %s: want 1 to %d, have %d", queue, MaxShards, n)
		}
	}
	noShard := func(field string, names map[string]int) error {
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if queue, ok := queueOfShard(name); ok && shards[queue] > 0 {
				return fmt.Errorf("queue: %s: want no name of a shard of %s, have %s", field, queue, name)
			}
		}
		return nil
	}
	return cmp.Or(noShard("queues", queues), noShard("shards", shards))
}
