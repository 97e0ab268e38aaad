-- Has the waiter stand in a line, in which it may stand already; take.lua comes before it.
--   waited  how long it has waited already, us: newcomers stand behind it
--   came    when it came, if that was before this call, us; or '0'
--   keep    how long the line is kept, ms
-- Returns its place, its ticket and how long it has waited, in us.
local function join(line, waiter, waited, came, keep)
  local t = redis.call('TIME')
  local now = t[1] * 1000000 + t[2]
  local ticket = tonumber(redis.call('ZSCORE', line, waiter) or '0')
  if ticket == 0 then
    came = tonumber(came)
    ticket = came > 0 and math.min(came, now) or now - tonumber(waited)
    if came == 0 and ticket == now then -- a newcomer: behind the others, also when the clock stepped back
      local tail = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')
      ticket = math.max(now, tonumber(tail[2] or '0') + 1)
    end
    redis.call('ZADD', line, digits(ticket), waiter)
  end
  redis.call('PEXPIRE', line, keep)
  return redis.call('ZRANK', line, waiter) + 1, digits(ticket), digits(math.max(0, now - ticket))
end

