// Package asynqredis knows how asynq keeps tasks in Redis: its keys and its encoding. The package
// has the moves between asynq's sets for which asynq has no call: park, wake, requeue and recover.
//
// [Park] moves a running task to the retry set, where it waits for a lock. That counts nothing and
// archives nothing. [Wake] moves a waiting task to the head of pending. [Attempt.Requeue] requeues
// a task whose handler has not started. [Recover] requeues a task whose worker has died.
// [ListContended] and [AllWaiting] list the locks and the tasks that wait, for the sweeper. [Servers]
// lists asynq's servers.
package asynqredis
