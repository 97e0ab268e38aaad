-- Takes the next task of a queue, as asynq's own script does, and stamps it.
--
-- KEYS[1]  asynq:{queue}:pending
-- KEYS[2]  asynq:{queue}:paused
-- KEYS[3]  asynq:{queue}:active
-- KEYS[4]  asynq:{queue}:lease
-- ARGV[1]  when the lease ends, Unix seconds
-- ARGV[2]  what the keys of the queue's tasks begin with
-- ARGV[3]  the attempt's name
--
-- Returns the encoded task, or nil when there is none to be had.
--
-- Guarantees: the same state as after asynq's script; besides, the task's hash
-- names its latest attempt, and no mark of an earlier parking is left in it.

if redis.call('EXISTS', KEYS[2]) == 1 then return nil end
local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
if not id then return nil end
local task = ARGV[2] .. id
redis.call('HSET', task, 'state', 'active', 'siding_attempt', ARGV[3])
redis.call('HDEL', task, 'pending_since', 'siding_ticket', 'siding_called')
redis.call('ZADD', KEYS[4], ARGV[1], id)
return redis.call('HGET', task, 'msg')
