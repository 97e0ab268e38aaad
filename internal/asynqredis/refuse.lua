-- Puts aside a task that is being dequeued, because somebody holds its lock, within
-- dequeue.lua, whose KEYS and ARGV it reads. encoded.lua and aside.lua come before it;
-- held_ahead and join_ahead are defined by package lock.

-- What the dashboard shows of a waiting task.
--   by      who holds the lock
--   since   when it was granted to that one, us; 0 where that is not known
local function busy_reason(resource, by, since, place)
  local clock, th = '', 'th'
  if since > 0 then
    local s = math.floor(since / 1000000)
    clock = string.format(' since %02d:%02d:%02d.%03d', math.floor(s / 3600) % 24, math.floor(s / 60) % 60, s % 60,
      math.floor(since / 1000) % 1000)
  end
  if place % 100 < 11 or place % 100 > 13 then th = ({'st', 'nd', 'rd'})[place % 10] or 'th' end
  return 'waiting for ' .. resource .. ', held by ' .. by .. clock .. ', ' .. string.format('%d', place) .. th .. ' in line'
end

-- Has the task wait in the line of its lock, for which it takes it out of the active ones.
--   resource  what named has found
--   value     what the lock holds
--   with      what join_ahead wants to know
-- Returns {id, kind, resource, how often it has been parked} and what join_ahead returns;
-- nothing where the task is left to its handler. It ends in the same state as if its handler
-- had been refused and had parked it.
local function refuse(task, id, msg, resource, waiter, value, with)
  local by, granted = held_ahead(value)
  if not by or string.find(by, '[\128-\255%c]') then return end -- a text in an encoded task must be UTF-8
  local found, t = parts(msg), redis.call('TIME')
  if not found or found.resource ~= resource then return end
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  if found.deadline ~= 0 and found.deadline * 1000 <= now then return end

  local refusal = join_ahead(with, resource, waiter, value)
  local _, left, last, place, ticket, waited = unpack(refusal)
  local reason = busy_reason(resource, by, granted and tonumber(last) or 0, place)
  local wait = math.max(left, 0) + 1000
  if place > 1 then
    wait = wait + math.min(math.max((place - 1) * ARGV[6], tonumber(waited) / 4000), ARGV[7])
    wait = math.floor(wait + t[2] % math.max(wait / 20, 500)) -- so that a long line does not come all at once
  end
  local parked = redis.call('HINCRBY', task, 'siding_parked', 1)
  if found.unique ~= '' then prolong(found.unique, id, wait + ARGV[8]) end
  aside(task, KEYS[6], id, with_error(found, reason, tonumber(t[1])), math.floor((now + wait) / 1000), ticket)
  redis.call('LREM', KEYS[3], 1, id)
  redis.call('HDEL', task, 'pending_since', 'siding_attempt', 'siding_called')
  return {id, found.kind, resource, parked, unpack(refusal)}
end

