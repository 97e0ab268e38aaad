-- Takes the lock, or joins its line.
--
-- KEYS[1]  lock     the token of the holder, or a reservation
-- KEYS[2]  grant    the last fencing token; a trailing '*' says that the lock
--                   has been reserved since it was last granted
-- KEYS[3]  line     sorted set of waiters by ticket
-- ARGV[1]  token    unique per acquisition
-- ARGV[2]  ttl of the lock, ms
-- ARGV[3]  how long the grant is kept, ms
-- ARGV[4]  waiter   '' for a caller that does not stand in line
-- ARGV[5]  grace of a reservation, ms
-- ARGV[6]  how long line and mark are kept, ms
-- ARGV[7]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
--
-- Returns {1, fence, time since the reservation in us or '-1'} when held, else
-- {0, value, ms left, place, ticket, waited us, '' or reservation, its waiter, its ticket, last fence}.
--
-- A lock key of another type is an error, and left as it is.
--
-- Guarantees: at most one token holds the lock; the fence is above all earlier
-- ones; the same call made twice (its reply was lost) holds what it held, or
-- names the reservation that it made;
-- who holds the lock is in no line; nobody in line is overtaken by a later
-- waiter, but when a reservation has lapsed.

local function us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function digits(n) return string.format('%.0f', n) end

local waiter = ARGV[4]
local value = redis.call('GET', KEYS[1])
local last, lapsed = string.match(redis.call('GET', KEYS[2]) or '0', '^(%d+)(%*?)$')
last = tonumber(last or '0')

local function take(handoff)
  local now = us()
  local fence = math.max(last + 1, now)
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  redis.call('SET', KEYS[2], digits(fence), 'PX', ARGV[3])
  return {1, digits(fence), handoff and digits(math.max(0, now - handoff)) or '-1'}
end

if value == ARGV[1] then
  if last == 0 then return take() end -- the grant was deleted or evicted
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, digits(last), '-1'}
end

local reservation, head = '', false
if not value then
  if waiter ~= '' then
    head = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  end
  if not head or not head[1] or head[1] == waiter or lapsed == '*' then
    if head and head[1] then redis.call('ZREM', KEYS[3], waiter) end
    return take()
  end
  -- The holder died without handing off: it is the head's turn, not ours.
  reservation = ARGV[7] .. digits(us()) .. ':' .. head[1]
  redis.call('SET', KEYS[1], reservation, 'PX', ARGV[5])
  redis.call('SET', KEYS[2], digits(last) .. '*', 'PX', ARGV[6])
  value = reservation
elseif waiter ~= '' then
  local since, whose = string.match(value, '^siding%-reserved:[^:]+:(%d+):(.*)$')
  if whose == waiter then
    redis.call('ZREM', KEYS[3], waiter)
    return take(tonumber(since))
  elseif string.sub(value, 1, #ARGV[7]) == ARGV[7] then
    -- This very call made it, and its reply was lost: nobody has called the head.
    reservation, head = value, {whose, redis.call('ZSCORE', KEYS[3], whose) or '0'}
  end
end

local place, ticket, waited = 0, 0, 0
if waiter ~= '' then
  local now = us()
  ticket = tonumber(redis.call('ZSCORE', KEYS[3], waiter) or '0')
  if ticket == 0 then
    local tail = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
    ticket = math.max(now, tonumber(tail[2] or '0') + 1)
    redis.call('ZADD', KEYS[3], digits(ticket), waiter)
  end
  redis.call('PEXPIRE', KEYS[3], ARGV[6])
  place = redis.call('ZRANK', KEYS[3], waiter) + 1
  waited = math.max(0, now - ticket)
end
return {0, value, redis.call('PTTL', KEYS[1]), place, digits(ticket), digits(waited),
  reservation, head and head[1] or '', head and digits(tonumber(head[2] or '0')) or '0', digits(last)}
