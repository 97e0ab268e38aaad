package compare

import (
	"slices"
	"time"
)

// A Job is what a task needs: a resource and a time.
type Job struct {
	ID, Resource string
	Work         time.Duration
}

// Least returns a time that no way can beat: the work of the resource that has most, or all work
// divided by the workers, whichever is longer.
func Least(jobs []Job, workers int) time.Duration {
	var all, longest time.Duration
	of := make(map[string]time.Duration)
	for _, j := range jobs {
		all += j.Work
		of[j.Resource] += j.Work
		longest = max(longest, of[j.Resource])
	}
	return max(longest, all/time.Duration(workers))
}

// Firsts returns the id of the first job of each resource. Nobody has its lock before, so that the job
// waits for a worker alone.
func Firsts(jobs []Job) []string {
	wanted := make(map[string]bool)
	var ids []string
	for _, j := range jobs {
		if !wanted[j.Resource] {
			ids = append(ids, j.ID)
		}
		wanted[j.Resource] = true
	}
	return ids
}

// Starts returns when each job starts, by its id, if a free worker takes the first job whose
// resource is free, and nothing but the work takes time.
func Starts(jobs []Job, workers int) map[string]time.Duration {
	type run struct {
		resource string
		ends     time.Duration
	}
	starts := make(map[string]time.Duration, len(jobs))
	var running []run
	taken := make(map[string]bool)
	for now, left := time.Duration(0), slices.Clone(jobs); ; {
		left = slices.DeleteFunc(left, func(j Job) bool {
			if len(running) == workers || taken[j.Resource] {
				return false
			}
			starts[j.ID], taken[j.Resource] = now, true
			running = append(running, run{j.Resource, now + j.Work})
			return true
		})
		if len(left) == 0 {
			return starts
		}
		now = slices.MinFunc(running, func(a, b run) int { return int(a.ends - b.ends) }).ends
		running = slices.DeleteFunc(running, func(r run) bool {
			if r.ends == now {
				delete(taken, r.resource)
			}
			return r.ends == now
		})
	}
}
