-- Parks an active task: active -> retry, or active -> head of pending if the task has been woken
-- meanwhile. notify.lua, encoded.lua and parking.lua come before it.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:active
-- KEYS[3]  asynq:{queue}:lease
-- KEYS[4]  asynq:{queue}:retry
-- KEYS[5]  asynq:{queue}:pending
-- KEYS[6]  siding:{queue}:notify
-- KEYS[7]  siding:{queue}:contended
-- ARGV[1]  task id
-- ARGV[2]  why it is parked
-- ARGV[3]  its fallback time, Unix seconds; its deadline, if that is earlier, comes instead
-- ARGV[4]  the attempt's name; '' when it has none
-- ARGV[5]  its ticket in the wait queue; '' when it is in none
-- ARGV[6]  for how long after its fallback time a task stays unique, ms
-- ARGV[7]  the lock in whose wait queue it is; '' when it is in none
-- ARGV[8]  its resource, which replaces the one in its header, if it has one; '' replaces nothing
--
-- Returns {how often it has been parked, 1 if it was woken already}; {-1, 0}
-- when a later attempt has started or the task is gone.
--
-- Guarantees: no attempt, failure or processed task is counted. The reason shows the task's own
-- last failure, too. An attempt that was superseded moves nothing. A wake that came first is not
-- lost.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'siding_woken', 'state', 'msg')
if ARGV[4] ~= '' and task[1] ~= ARGV[4] or task[3] ~= 'active' then return {-1, 0} end
if redis.call('LREM', KEYS[2], 0, ARGV[1]) == 0 then return {-1, 0} end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[1], 'siding_attempt', 'siding_came') -- it is over, and would take 110 bytes or more while the task waits

local t, msg, at = redis.call('TIME'), task[4] or '', tonumber(ARGV[3])
local found = parts(msg)
if found then
  if found.resource and ARGV[8] ~= '' then found.header = header_of(ARGV[8]) end
  msg = with_reason(found, ARGV[2])
  if found.deadline ~= 0 then at = math.min(at, found.deadline) end
end
local woken = ARGV[5] ~= '' and task[2]
if woken then
  -- The task keeps its ticket, so that a second wake finds the task in pending.
  redis.call('HSET', KEYS[1], 'msg', msg, 'state', 'pending', 'pending_since', string.format('%s%06d000', t[1], t[2]),
    'siding_ticket', ARGV[5])
  redis.call('RPUSH', KEYS[5], ARGV[1])
  notify(KEYS[6], 1)
else
  to_retry(KEYS[1], KEYS[4], ARGV[1], msg, at, ARGV[5], ARGV[7])
end
if ARGV[7] ~= '' then contend(KEYS[7], ARGV[7], t[1] * 1000000 + t[2]) end
if found and found.unique ~= '' then prolong(found.unique, ARGV[1], (at - t[1]) * 1000 + ARGV[6]) end
return {redis.call('HINCRBY', KEYS[1], 'siding_parked', 1), woken and 1 or 0}
