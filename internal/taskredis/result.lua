-- Keeps the result of a task.
--
-- KEYS[1]  the task
-- ARGV[1]  the attempt whose result it is
-- ARGV[2]  the result
--
-- Returns 1, or 0 if the attempt has ended or is not the task's latest.
--
-- Guarantee: with 0 nothing has changed; in particular, a task that was deleted does not come to life again.

local have = redis.call('HMGET', KEYS[1], 'state', 'siding_attempt')
if have[1] ~= 'active' or have[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'result', ARGV[2])
return 1
