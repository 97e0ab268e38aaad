-- Parks a task that is being dequeued, because its lock is busy. This text is part of dequeue.lua,
-- and reads the KEYS and ARGV of that. encoded.lua, parking.lua and lock.lua come before it.

-- The locks for which this call has parked a task, by resource: {value, ms left, last fence, what the
-- reason says of its holder, the waiter that it is reserved for or nil}. They stay as they are
-- until the call takes a task.
local busy_locks = {}

-- Returns the time of day, in UTC, of a time in us.
local function clock(t)
  local s = math.floor(t / 1000000)
  return string.format('%02d:%02d:%02d.%03d', math.floor(s / 3600) % 24, math.floor(s / 60) % 60, s % 60,
    math.floor(t / 1000) % 1000)
end

-- Returns what the dashboard shows of a waiting task, without its position: why it was parked.
--   by      the holder of the lock
--   since   when the lock was granted to the holder, us; 0 if that is not known
--   now     us
local function busy_reason(resource, by, since, now)
  return string.format(BUSY, resource, clock(now), by, since > 0 and string.format(SINCE, clock(since)) or '', '')
end

-- Returns whether a dequeue may park a task for a resource. A task with a policy goes to its handler,
-- as only the guard knows policies.
--   found   what parts returned
--   now     ms
local function may_park(found, resource, now)
  if not found or found.resource ~= resource or found.policy then return false end
  if ARGV[14] ~= '' and string.find(ARGV[14], '\n' .. found.kind .. '\n', 1, true) then return false end
  return found.deadline == 0 or found.deadline * 1000 > now
end

-- Returns after how many ms a task comes by itself, and keeps the task unique until then. part of the
-- longest time, from 0 to 1, spreads the tasks of one second.
local function fall_back(id, found, part, now)
  local wait = math.floor(ARGV[6] + ARGV[7] * part)
  if found.deadline ~= 0 then wait = math.min(wait, found.deadline * 1000 - now) end
  if found.unique ~= '' then prolong(found.unique, id, wait + ARGV[8]) end
  return wait
end

-- Moves the task from the active ones to the wait queue of its lock.
--   resource  from the task's header, as named returns it
--   value     what the lock holds
--   with      see lock.lua
--   ticket    the one under which the task has waited before, or ''
-- Returns {resource, value, ms left, last fence, id, kind, how often it has been parked, position,
-- ticket}, as join_queue returns some of them; nothing if the task goes to its handler. The task ends
-- in the same state as if the guard had found the lock busy before the handler.
function park_busy(task, id, msg, resource, waiter, value, with, ticket)
  local by, granted = lock_holder(value)
  if not by or string.find(by, '[\128-\255%c]') then return end -- a text in an encoded task must be UTF-8
  local found, t = parts(msg), redis.call('TIME')
  local us = t[1] * 1000000 + t[2]
  local now = math.floor(us / 1000)
  if not may_park(found, resource, now) then return end

  if ticket == '' and found.priority > 0 then ticket = string.format('%.0f', us - found.priority * ADVANCE) end
  local _, left, last, position, joined = unpack(join_queue(with, resource, waiter, value, ticket == '' and '0' or ticket))
  local reason = busy_reason(resource, by, granted and tonumber(last) or 0, us)
  local wait = fall_back(id, found, t[2] / 1000000, now)
  local parked = redis.call('HINCRBY', task, 'siding_parked', 1)
  to_retry(task, KEYS[6], id, with_reason(found, reason .. string.format(POSITION, position)), math.floor((now + wait) / 1000),
    joined, with[1] .. resource)
  contend(KEYS[7], with[1] .. resource, us)
  redis.call('LREM', KEYS[3], 1, id)
  redis.call('HDEL', task, 'pending_since', 'siding_attempt', 'siding_came', 'siding_woken')
  local _, whose = reserved(value)
  busy_locks[resource] = {value, left, last, reason, whose}
  return {resource, value, left, last, id, found.kind, parked, position, joined}
end

