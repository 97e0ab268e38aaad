-- Puts aside a task that is being dequeued, because somebody holds its lock, within
-- dequeue.lua, whose KEYS and ARGV it reads. encoded.lua and aside.lua come before it;
-- held_ahead and join_ahead are defined by package lock.

-- The time of day, in UTC, of a time in us.
local function clock(t)
  local s = math.floor(t / 1000000)
  return string.format('%02d:%02d:%02d.%03d', math.floor(s / 3600) % 24, math.floor(s / 60) % 60, s % 60,
    math.floor(t / 1000) % 1000)
end

-- What the dashboard shows of a waiting task: how things were when it was parked.
--   by      who held the lock
--   since   when it was granted to that one, us; 0 where that is not known
--   now     us
local function busy_reason(resource, by, since, place, now)
  local granted, th = '', 'th'
  if since > 0 then granted = ' since ' .. clock(since) end
  if place % 100 < 11 or place % 100 > 13 then th = ({'st', 'nd', 'rd'})[place % 10] or 'th' end
  return 'waiting for ' .. resource .. '; when parked, at ' .. clock(now) .. ': held by ' .. by .. granted .. ', ' ..
    string.format('%d', place) .. th .. ' in line'
end

-- Has the task wait in the line of its lock, for which it takes it out of the active ones.
--   resource  what named has found
--   value     what the lock holds
--   with      what join_ahead wants to know
--   ticket    the one under which it has waited before, or ''
-- Returns {id, kind, resource, how often it has been parked} and what join_ahead returns;
-- nothing where the task is left to its handler. It ends in the same state as if its handler
-- had been refused and had parked it.
local function refuse(task, id, msg, resource, waiter, value, with, ticket)
  local by, granted = held_ahead(value)
  if not by or string.find(by, '[\128-\255%c]') then return end -- a text in an encoded task must be UTF-8
  local found, t = parts(msg), redis.call('TIME')
  if not found or found.resource ~= resource then return end
  local us = t[1] * 1000000 + t[2]
  local now = math.floor(us / 1000)
  if found.deadline ~= 0 and found.deadline * 1000 <= now then return end

  local refusal = join_ahead(with, resource, waiter, value, ticket == '' and '0' or ticket)
  local _, _, last, place, joined = unpack(refusal)
  local reason = busy_reason(resource, by, granted and tonumber(last) or 0, place, us)
  local wait = math.floor(ARGV[6] + ARGV[7] * t[2] / 1000000) -- so that those of one second do not come together
  if found.deadline ~= 0 then wait = math.min(wait, found.deadline * 1000 - now) end
  local parked = redis.call('HINCRBY', task, 'siding_parked', 1)
  if found.unique ~= '' then prolong(found.unique, id, wait + ARGV[8]) end
  aside(task, KEYS[6], id, with_reason(found, reason), math.floor((now + wait) / 1000), joined, with[1] .. resource)
  contend(KEYS[7], with[1] .. resource, us)
  redis.call('LREM', KEYS[3], 1, id)
  redis.call('HDEL', task, 'pending_since', 'siding_attempt', 'siding_called')
  return {id, found.kind, resource, parked, unpack(refusal)}
end

