-- What a waiter comes to a line with; take.lua comes before it.

-- Returns the channel on which the waiter is told that its turn has come: the first two parts
-- of its name. Nothing for a waiter that has none.
local function channel(waiter) return string.match(waiter, '^siding%-%a+:[^:]*') end

-- Puts the waiters that were set aside back into the line, each in its old place.
--   waiter  one who has come: those come back if its group is that of the first of them, which
--           so is paused no more. '' where no group is known to be paused
--   keep    how long the line is kept, ms
local function resume(line, paused, waiter, keep)
  local first = redis.call('ZRANGE', paused, 0, 0)[1]
  if not first or waiter ~= '' and channel(first) ~= channel(waiter) then return end
  redis.call('ZUNIONSTORE', line, 2, line, paused, 'AGGREGATE', 'MIN')
  redis.call('PEXPIRE', line, keep)
  redis.call('DEL', paused)
end

-- Has the waiter stand in a line, in which it may stand already.
--   waited  how long it has waited already, us: newcomers stand behind it
--   came    when it came, if that was before this call, us; or '0'. The clock by which that
--           was may be ahead of this one, by a second at most.
--   keep    how long the line is kept, ms
-- Returns its place, its ticket and how long it has waited, in us.
local function join(line, paused, waiter, waited, came, keep)
  resume(line, paused, waiter, keep)
  local t = redis.call('TIME')
  local now = t[1] * 1000000 + t[2]
  local ticket = tonumber(redis.call('ZSCORE', line, waiter) or '0')
  if ticket == 0 then
    came = tonumber(came)
    ticket = came > 0 and math.min(came, now + 1000000) or now - tonumber(waited)
    if came == 0 and ticket == now then -- a newcomer: behind the others, also when the clock stepped back
      local tail = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')
      ticket = math.max(now, tonumber(tail[2] or '0') + 1)
    end
    redis.call('ZADD', line, digits(ticket), waiter)
  end
  redis.call('PEXPIRE', line, keep)
  return redis.call('ZRANK', line, waiter) + 1, digits(ticket), digits(math.max(0, now - ticket))
end

