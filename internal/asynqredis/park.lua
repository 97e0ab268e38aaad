-- Puts an active task aside: active -> retry, or straight to the head of
-- pending when it has been called meanwhile. bell.lua, encoded.lua and aside.lua come
-- before it.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:active
-- KEYS[3]  asynq:{queue}:lease
-- KEYS[4]  asynq:{queue}:retry
-- KEYS[5]  asynq:{queue}:pending
-- KEYS[6]  siding:{queue}:bell
-- KEYS[7]  siding:{queue}:contended
-- ARGV[1]  task id
-- ARGV[2]  why it is put aside
-- ARGV[3]  when its timer fires at the latest, Unix seconds; a deadline of its own may be before
-- ARGV[4]  the attempt's name; '' where it has none
-- ARGV[5]  its ticket in the line; '' when it stands in none
-- ARGV[6]  how much longer than its timer a task's uniqueness lasts, ms
-- ARGV[7]  the lock in whose line it stands; '' when it stands in none
-- ARGV[8]  its resource, which its header, if it has one, names from now on; '' as before
--
-- Returns {how often it has been parked, 1 if it was called already}; {-1, 0}
-- when a later attempt has begun or the task is gone.
--
-- Guarantees: no attempt, failure or processed task is counted; the reason shows the task's
-- own last failure, too; an attempt that was superseded moves nothing; a call that came first
-- is not lost.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'siding_called', 'state', 'msg')
if ARGV[4] ~= '' and task[1] ~= ARGV[4] or task[3] ~= 'active' then return {-1, 0} end
if redis.call('LREM', KEYS[2], 0, ARGV[1]) == 0 then return {-1, 0} end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[1], 'siding_attempt') -- it is over, and would take 110 bytes while the task waits

local t, msg, at = redis.call('TIME'), task[4] or '', tonumber(ARGV[3])
local found = parts(msg)
if found then
  if found.resource and ARGV[8] ~= '' then found.resource = ARGV[8] end
  msg = with_reason(found, ARGV[2])
  if found.deadline ~= 0 then at = math.min(at, found.deadline) end
end
local called = ARGV[5] ~= '' and task[2]
if called then
  -- With its ticket, so that the caller, who looks again, finds it on its way.
  redis.call('HSET', KEYS[1], 'msg', msg, 'state', 'pending', 'pending_since', string.format('%s%06d000', t[1], t[2]),
    'siding_ticket', ARGV[5])
  redis.call('RPUSH', KEYS[5], ARGV[1])
  ring(KEYS[6], 1)
else
  aside(KEYS[1], KEYS[4], ARGV[1], msg, at, ARGV[5], ARGV[7])
end
if ARGV[7] ~= '' then contend(KEYS[7], ARGV[7], t[1] * 1000000 + t[2]) end
if found and found.unique ~= '' then prolong(found.unique, ARGV[1], (at - t[1]) * 1000 + ARGV[6]) end
return {redis.call('HINCRBY', KEYS[1], 'siding_parked', 1), called and 1 or 0}
