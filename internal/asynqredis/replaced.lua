-- Says whether a waiting task is still to run, and may delete it. waits.lua and encoded.lua come
-- before it.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:retry
-- ARGV[1]  task id
-- ARGV[2]  the ticket under which it waits
-- ARGV[3]  the lock for which it waits
-- ARGV[4]  '1' to delete it if it is parked for that lock, else '0'
--
-- Returns {'deleted', its priority}; {'runs', 0} when the task is to run for that lock, as far as is
-- known, or runs; or {'gone', 0}.
--
-- Guarantees: only a parked task is deleted, and none that again.lua has marked, as its handler may have
-- begun. The same call made twice (its reply was lost) says
-- 'gone'.

local task = redis.call('HMGET', KEYS[1], 'state', 'siding_ticket', 'siding_lock', 'msg', 'siding_again')
local state, parked = task[1], task[1] == 'retry' and task[3] == ARGV[3] and waits(task[4])
-- A task that neither waits for the lock nor may be about to ask for it is another one of the same id.
if not (parked or state == 'active' or state == 'pending' and task[2]) then return {'gone', 0} end
if ARGV[4] ~= '1' or not parked or task[5] or task[2] ~= ARGV[2] then return {'runs', 0} end
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return {'runs', 0} end
local found = parts(task[4])
if found and found.unique ~= '' and redis.call('GET', found.unique) == ARGV[1] then redis.call('DEL', found.unique) end
redis.call('DEL', KEYS[1])
return {'deleted', found and found.priority or 0}
