-- Requeues a prefetched task that no dequeue took: active -> head of pending. notify.lua comes
-- before it.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:active
-- KEYS[3]  asynq:{queue}:lease
-- KEYS[4]  asynq:{queue}:pending
-- KEYS[5]  siding:{queue}:notify
-- ARGV[1]  the attempt's name
-- ARGV[2]  the task's id
-- ARGV[3]  the ticket of the attempt, us; or '' for none
--
-- Returns 1; or 0 when the attempt is not the task's latest, or is neither active nor requeued.
--
-- Guarantees: nothing is counted. The task keeps its ticket. The same call made twice (its reply
-- was lost) has the effect of one.

local found = redis.call('HMGET', KEYS[1], 'siding_attempt', 'state', 'siding_ticket')
if found[1] ~= ARGV[1] then return 0 end
-- If the task is pending with the attempt's name and ticket, an earlier call has requeued it.
if found[2] ~= 'active' then return found[2] == 'pending' and found[3] == ARGV[3] and 1 or 0 end
redis.call('LREM', KEYS[2], 1, ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
redis.call('RPUSH', KEYS[4], ARGV[2])
redis.call('HSET', KEYS[1], 'state', 'pending', 'siding_ticket', ARGV[3])
notify(KEYS[5], 1)
return 1
