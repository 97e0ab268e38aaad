-- Puts an active task aside: active -> retry, or straight to the head of
-- pending when it has been called meanwhile. bell.lua and aside.lua come before it.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:active
-- KEYS[3]  asynq:{queue}:lease
-- KEYS[4]  asynq:{queue}:retry
-- KEYS[5]  asynq:{queue}:pending
-- KEYS[6]  siding:{queue}:bell
-- KEYS[7]  siding:{queue}:contended
-- KEYS[8]  the task's uniqueness key, if it has one
-- ARGV[1]  task id
-- ARGV[2]  encoded task with the reason as its last error
-- ARGV[3]  when its timer fires, Unix seconds
-- ARGV[4]  the attempt's name
-- ARGV[5]  its ticket in the line; '' when it stands in none
-- ARGV[6]  the uniqueness key lives at least this long, ms
-- ARGV[7]  now, Unix nanoseconds
-- ARGV[8]  the lock in whose line it stands; '' when it stands in none
--
-- Returns {how often it has been parked, 1 if it was called already}; {-1, 0}
-- when a later attempt has begun or the task is gone.
--
-- Guarantees: no attempt, failure or processed task is counted; an attempt
-- that was superseded moves nothing; a call that came first is not lost.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'siding_called', 'state')
if task[1] ~= ARGV[4] or task[3] ~= 'active' then return {-1, 0} end
if redis.call('LREM', KEYS[2], 0, ARGV[1]) == 0 then return {-1, 0} end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[1], 'siding_attempt') -- it is over, and would take 110 bytes while the task waits

local called = ARGV[5] ~= '' and task[2]
if called then
  -- With its ticket, so that the caller, who looks again, finds it on its way.
  redis.call('HSET', KEYS[1], 'msg', ARGV[2], 'state', 'pending', 'pending_since', ARGV[7], 'siding_ticket', ARGV[5])
  redis.call('RPUSH', KEYS[5], ARGV[1])
  ring(KEYS[6], 1)
else
  aside(KEYS[1], KEYS[4], ARGV[1], ARGV[2], ARGV[3], ARGV[5], ARGV[8])
end
if ARGV[8] ~= '' then
  local now = redis.call('TIME')
  contend(KEYS[7], ARGV[8], now[1] * 1000000 + now[2])
end
if KEYS[8] then prolong(KEYS[8], ARGV[1], tonumber(ARGV[6])) end
return {redis.call('HINCRBY', KEYS[1], 'siding_parked', 1), called and 1 or 0}
