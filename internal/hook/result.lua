-- Keeps what the handler of an attempt has written as its result.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- ARGV[1]  the attempt's name
-- ARGV[2]  the result
--
-- Returns 1, or 0 when the attempt is over and nothing was written.
--
-- Guarantees: no task that is gone comes back, and no result of a later attempt is overwritten.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'state')
if task[1] ~= ARGV[1] or task[2] ~= 'active' then return 0 end
redis.call('HSET', KEYS[1], 'result', ARGV[2])
return 1
