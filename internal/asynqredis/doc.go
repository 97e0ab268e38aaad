// Package asynqredis is the one place that knows how asynq keeps its tasks in
// Redis: its keys, its scripts, and the moves between its sets that asynq itself
// has no call for.
//
// A [Hook] sits on the Redis connection that asynq's server uses. It knows
// asynq's script calls by the SHA1 of their text, so a version of asynq whose
// scripts differ is not touched at all: its tasks then have no [Attempt]. Five
// things happen on the connection:
//
//   - A dequeue is sent as our own script, which does the same and also stamps the
//     task with the attempt's name and wipes the marks of earlier parking.
//   - The retry or archive call of an attempt that is to be parked is sent as
//     park.lua: active -> retry, nothing counted, nothing archived.
//   - Every other acknowledgement is sent with a condition in front of asynq's own
//     script: the attempt that it is of is still the task's latest. That makes it safe
//     to send again, which asynq tries with a context that has ended.
//   - A result that a handler writes is kept only while its attempt lasts.
//   - Everything else passes through.
//
// [Promote] moves a parked task to the head of pending.
package asynqredis
