-- How a waiter joins a wait queue. take.lua comes before it.

-- Returns the channel on which a reservation of the waiter is published: the first two parts
-- of its name. Nothing for a waiter that has no channel.
local function channel(waiter) return string.match(waiter, '^siding%-%a+:[^:]*') end

-- Moves the waiters of paused groups back into the wait queue, each to its old position.
--   waiter     one who asks now: they come back if the first of them is of its group, which
--              thus is paused no more. '' if no group is known to be paused
--   retention  of the wait queue, ms
local function resume(queue, paused, waiter, retention)
  local first = redis.call('ZRANGE', paused, 0, 0)[1]
  if not first or waiter ~= '' and channel(first) ~= channel(waiter) then return end
  redis.call('ZUNIONSTORE', queue, 2, queue, paused, 'AGGREGATE', 'MIN')
  redis.call('PEXPIRE', queue, retention)
  redis.call('DEL', paused)
end

-- Puts the waiter into a wait queue, in which it may be already.
--   waited     how long it has waited already, us: it comes before those who are newer
--   came       when it came, if that was before this call, us; or '0'. The clock that says so
--              may be ahead of this one, by a second at most.
--   retention  of the wait queue, ms
-- Returns its position and its ticket.
local function join(queue, paused, waiter, waited, came, retention)
  resume(queue, paused, waiter, retention)
  local t = redis.call('TIME')
  local now = t[1] * 1000000 + t[2]
  local ticket = tonumber(redis.call('ZSCORE', queue, waiter) or '0')
  if ticket == 0 then
    came = tonumber(came)
    ticket = came > 0 and math.min(came, now + 1000000) or now - tonumber(waited)
    if came == 0 and ticket == now then -- a newcomer: behind the others, also when the clock stepped back
      local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
      ticket = math.max(now, tonumber(tail[2] or '0') + 1)
    end
    redis.call('ZADD', queue, digits(ticket), waiter)
  end
  redis.call('PEXPIRE', queue, retention)
  return redis.call('ZRANK', queue, waiter) + 1, digits(ticket)
end

