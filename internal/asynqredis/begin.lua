-- Writes down that the handler of an attempt is about to begin.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- ARGV[1]  the attempt's name
--
-- Returns 1 when the attempt is still the task's latest, else 0.
--
-- Guarantee: a task that is gone is not created anew.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'state')
if task[1] ~= ARGV[1] or task[2] ~= 'active' then return 0 end
redis.call('HSET', KEYS[1], 'siding_begun', ARGV[1])
return 1
