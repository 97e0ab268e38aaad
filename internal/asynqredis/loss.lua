-- Counts that an attempt has lost its lock.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- ARGV[1]  the attempt's name
--
-- Returns how often attempts of the task have lost their locks by now; 0 when the attempt is not
-- the task's latest, or no longer active.
--
-- Guarantees: no task that is gone comes back. The same call made twice counts once.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'state', 'siding_lost', 'siding_losses')
if task[1] ~= ARGV[1] or task[2] ~= 'active' then return 0 end
if task[3] == ARGV[1] then return tonumber(task[4]) end
redis.call('HSET', KEYS[1], 'siding_lost', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'siding_losses', 1)
