package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sidingq/siding/bench/internal/system"
	"github.com/sidingq/siding/bench/internal/workload"
)

// plan makes the same tasks for the same seed: so many for each key, shuffled.
func plan(seed uint64, keys, each int) []workload.Task {
	random := rand.New(rand.NewPCG(seed, 0))
	var all []workload.Task
	for key := range keys {
		for range each {
			all = append(all, workload.Task{Key: fmt.Sprintf("key:%d", key), Work: time.Duration(100+random.IntN(400)) * time.Millisecond})
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return workload.Numbered(all)
}

// A setting is what a process of a contender is told, in Go and in Node.
type setting struct {
	Contender string `json:"contender"`
	Server    string `json:"server"`  // address of Redis, or URL of a PostgreSQL database
	Plan      string `json:"plan"`    // file of the tasks
	Journal   string `json:"journal"` // file of the records, for a worker
	Slots     int    `json:"slots"`   // tasks that run at once
	TTL       int    `json:"ttl"`     // of a lock, in ms
}

func (s setting) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has only numbers and text
	}
	return string(text)
}

func (s setting) config(handle system.Handler) system.Config {
	return system.Config{Server: s.Server, Workers: s.Slots, TTL: time.Duration(s.TTL) * time.Millisecond, Drain: drainTimeout, Handle: handle}
}
