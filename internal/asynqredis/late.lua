-- Marks a task that is not to run any more, as it has waited for too long; or reads the mark.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- ARGV[1]  the attempt's name
-- ARGV[2]  how many retries the task has used, to mark it; or ''
--
-- Returns how many retries the task had used when it was marked last; -1 for a task without a mark,
-- or for an attempt that is not the task's latest.
--
-- Guarantees: no task that is gone comes back. The same call made twice has the effect of one.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'siding_late')
if task[1] ~= ARGV[1] then return -1 end
if ARGV[2] == '' then return tonumber(task[2] or -1) end
redis.call('HSET', KEYS[1], 'siding_late', ARGV[2])
return tonumber(ARGV[2])
