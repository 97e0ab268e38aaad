package lock

import "github.com/sidingq/siding/internal/store"

// A Store keeps locks where many processes find them: on one Redis ([Redis]), on a majority of
// Redis servers (lock/redlock), in etcd (lock/etcdlock), or in memory (lock/locktest). Only a
// [Locker] calls its methods. Their types are internal, so only this repository implements it.
type Store interface{ store.Store }
