package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
)

// MaxShards is over how many asynq queues one queue can be spread.
const MaxShards = 1000

// shardSuffix is the length of what follows the queue in a shard's name.
const shardSuffix = len(".000-aa")

// shardName names the i-th asynq queue over which a queue is spread, such as
// orders.003-hb. The letters choose the shard's place among the slots of a Redis
// Cluster, where names that are merely numbered would lie in heaps. Each place is the
// golden section of all slots further than that of the shard before, which spreads any
// number of shards evenly, over any number of masters. So the name depends
// on nothing but queue and i: with more shards the old ones stay what they are.
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

// slotOf returns the slot of a key, or of its hash tag, that goes on with s after a
// part whose checksum is crc.
func slotOf(crc uint16, s string) uint16 { return slotCRC(crc, s) % slots }

// slotCRC is the CRC-16 by which Redis Cluster chooses slots (XMODEM: polynomial 0x1021).
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

// queueOfShard returns the queue of which name would be a shard, however many it has.
func queueOfShard(name string) (queue string, ok bool) {
	cut := len(name) - shardSuffix
	if cut < 1 {
		return "", false
	}
	i, err := strconv.Atoi(name[cut+1 : cut+4])
	return name[:cut], err == nil && i >= 0 && shardName(name[:cut], i) == name
}

// shardQueues returns the asynq queues of a server and their weights: its queues,
// and the shards of each, of the same weight. A queue stays beside its shards for
// what was enqueued before it had any, or by clients that know of none.
func shardQueues(queues, shards map[string]int) map[string]int {
	all := maps.Clone(queues)
	for queue, weight := range queues {
		for i := range shards[queue] {
			all[shardName(queue, i)] = weight
		}
	}
	return all
}

// A sharding knows the names of the shards of each sharded queue, in order.
type sharding map[string][]string

func newSharding(shards map[string]int) sharding {
	s := make(sharding, len(shards))
	for queue, n := range shards {
		for i := range n {
			s[queue] = append(s[queue], shardName(queue, i))
		}
	}
	return s
}

// shardOf returns the asynq queue for tasks of this queue that share the key: the queue
// itself when it has no shards. Otherwise the first eight bytes of the key's SHA-256, as
// a big-endian number, modulo the number of shards; other programs may do the same.
func (s sharding) shardOf(queue, key string) string {
	names := s[queue]
	if len(names) == 0 {
		return queue
	}
	sum := sha256.Sum256([]byte(key))
	return names[binary.BigEndian.Uint64(sum[:])%uint64(len(names))]
}

// shardKey returns what decides in which shard a task is. Tasks of one resource share
// one shard. An unguarded one goes where its like would be found: by its kind and payload if it is
// to be unique, by its id if it has one, and else anywhere.
func shardKey(resource, kind string, payload []byte, o Options) string {
	switch {
	case resource != "":
		return resource
	case o.UniqueFor != 0:
		return kind + "\n" + string(payload)
	case o.TaskID != "":
		return o.TaskID
	default:
		return strconv.FormatUint(rand.Uint64(), 36)
	}
}

// checkShards returns an error that names the first field which cannot work.
// queues are those of a server; a client has none.
func checkShards(queues, shards map[string]int) error {
	for _, queue := range slices.Sorted(maps.Keys(shards)) {
		if badName(queue, maxName-shardSuffix) {
			return fmt.Errorf("queue: shards: want names of %s, have %q", wantName(maxName-shardSuffix), clip(queue))
		}
		if n := shards[queue]; n < 1 || n > MaxShards {
			return fmt.Errorf("queue: shards: %s: want 1 to %d, have %d", queue, MaxShards, n)
		}
	}
	for _, names := range []struct {
		field string
		names map[string]int
	}{{"queues", queues}, {"shards", shards}} {
		for _, name := range slices.Sorted(maps.Keys(names.names)) {
			if queue, ok := queueOfShard(name); ok && shards[queue] > 0 {
				return fmt.Errorf("queue: %s: want no name of a shard of %s, have %s", names.field, queue, name)
			}
		}
	}
	return nil
}
