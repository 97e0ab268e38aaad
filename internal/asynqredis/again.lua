-- Says whether the task of an attempt came again at some time for no failure of its own, and remembers
-- that.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- ARGV[1]  the attempt's name
-- ARGV[2]  '1' if it has come so now; '0' if it has unless its ticket is new, as a server that shuts
--          down keeps the ticket of a task that it requeues; '' if it comes from its wait queue
--
-- Returns 1 or 0. It returns 0 for an attempt that is not the task's latest.
--
-- Guarantees: no task that is gone comes back. The same call made twice has the effect of one.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'siding_again', 'siding_came')
if task[1] ~= ARGV[1] then return 0 end
if task[2] then return 1 end
local kept = ARGV[2] == '0' and task[3] and string.sub(task[3], 1, #ARGV[1] + 1) == ARGV[1] .. ' '
if ARGV[2] ~= '1' and not kept then return 0 end
redis.call('HSET', KEYS[1], 'siding_again', '1')
return 1
