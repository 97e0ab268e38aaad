// Package engine runs the tasks of asynq's queues, each under the lock of its resource.
package engine
