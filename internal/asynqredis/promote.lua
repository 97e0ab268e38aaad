-- Calls a parked task back: retry -> head of pending.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:retry
-- KEYS[3]  asynq:{queue}:pending
-- KEYS[4]  asynq:{queue}:paused
-- ARGV[1]  task id
-- ARGV[2]  the ticket under which it waits
-- ARGV[3]  now, Unix nanoseconds
-- ARGV[4]  how many places from the tail of pending are searched
--
-- Returns 'called' when it is on its way, 'noted' when it is still active (it
-- will be pending as soon as it parks), 'paused' when its queue is, 'gone' when
-- it does not wait under this ticket.
--
-- Guarantees: a task in the back-off after its own failure is not touched, nor
-- one that is gone; none is created; an id is in one set at a time.

local task = redis.call('HMGET', KEYS[1], 'state', 'siding_ticket')
local state, ticket = task[1], task[2]
if state ~= 'active' and ticket ~= ARGV[2] then return 'gone' end
if redis.call('EXISTS', KEYS[4]) == 1 then return 'paused' end

if state == 'active' then
  -- Tickets rise: a call of an older reservation, which comes late, must not hide this one's.
  local called = redis.call('HGET', KEYS[1], 'siding_called')
  if not called or tonumber(called) < tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], 'siding_called', ARGV[2]) end
  return 'noted'
end
if state == 'retry' and redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then
  redis.call('RPUSH', KEYS[3], ARGV[1])
  redis.call('HSET', KEYS[1], 'state', 'pending', 'pending_since', ARGV[3])
  return 'called'
end
if state == 'pending' then
  -- Its own timer was first: it is at the tail, which is the left end.
  if redis.call('LPOS', KEYS[3], ARGV[1], 'MAXLEN', ARGV[4]) then
    redis.call('LREM', KEYS[3], 1, ARGV[1])
    redis.call('RPUSH', KEYS[3], ARGV[1])
  end
  return 'called'
end
return 'gone'
