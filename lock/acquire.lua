-- Takes the lock, or joins its line. KEYS are those of line.lua.
--
-- ARGV[1]  token    unique per acquisition
-- ARGV[2]  ttl of the lock, ms
-- ARGV[3]  how long the grant is kept, ms
-- ARGV[4]  waiter   '' for a caller that does not stand in line
-- ARGV[5]  how long the waiter has waited already, us: newcomers stand behind it
-- ARGV[6]  '1' when the client calls waiters by hand
-- ARGV[7]  '1' in a Cluster
-- ARGV[8]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[9]  grace of a reservation, ms
-- ARGV[10] how long line and mark are kept, ms
--
-- Returns {1, fence, time since the reservation in us or '-1'} when held, else
-- {0, value, ms left, last fence, place, ticket, waited us, '' or a reservation
-- whose waiter has to be called, that waiter, its ticket}.
--
-- A lock key of another type is an error, and left as it is. So is a line of
-- another type, but then the lock may stay taken for its ttl.
--
-- Guarantees: at most one token holds the lock; the fence is above all earlier
-- ones; the same call made twice (its reply was lost) holds what it held, or
-- names the reservation that it made; who holds the lock is in no line; nobody
-- in line is overtaken by a later waiter, but when a reservation has lapsed, its
-- turn comes while there is nobody to call it, or the clock has stepped back.

local waiter, nonce, grace, keep = ARGV[4], ARGV[8], ARGV[9], ARGV[10]
local last, lapsed = string.match(redis.call('GET', KEYS[2]) or '0', '^(%d+)(%*?)$')
last = tonumber(last or '0')
-- Taken without a look at it, as it is free more often than not.
local free = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
local value = not free and redis.call('GET', KEYS[1])

-- Grants the lock, which is the token's, under the next fence.
local function grant(since)
  local now = us()
  local fence = digits(math.max(last + 1, now))
  redis.call('SET', KEYS[2], fence, 'PX', ARGV[3])
  return {1, fence, since and digits(math.max(0, now - since)) or '-1'}
end

local call = {'', '', '0'}
if free then
  if waiter == '' then return grant() end
  local first, reservation, ticket
  if lapsed ~= '*' then
    -- Where somebody is in line the holder died: it is the turn of the first.
    first, reservation, ticket = reserve(waiter, ARGV[6] == '1', ARGV[7] == '1', nonce, grace, keep)
    if not first then return grant() end
  end
  if not reservation then
    redis.call('ZREM', KEYS[3], waiter)
    return grant()
  end
  if not channel(first) then call = {reservation, first, ticket} end
  value = reservation
elseif value == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if last == 0 then return grant() end -- the grant was deleted or evicted
  return {1, digits(last), '-1'}
else
  local since, whose = reserved(value)
  if whose and whose == waiter then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    redis.call('ZREM', KEYS[3], waiter)
    return grant(since)
  end
  if begins(value, nonce) and not channel(whose) then
    -- This very call made it, and its reply was lost: nobody has called the first.
    call = {value, whose, redis.call('ZSCORE', KEYS[3], whose) or '0'}
  end
end

local place, ticket, waited = 0, 0, 0
if waiter ~= '' then
  local now = us()
  ticket = tonumber(redis.call('ZSCORE', KEYS[3], waiter) or '0')
  if ticket == 0 then
    ticket = now - tonumber(ARGV[5])
    if ticket == now then -- a newcomer: behind the others, also when the clock stepped back
      local tail = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
      ticket = math.max(now, tonumber(tail[2] or '0') + 1)
    end
    redis.call('ZADD', KEYS[3], digits(ticket), waiter)
  end
  redis.call('PEXPIRE', KEYS[3], keep)
  place = redis.call('ZRANK', KEYS[3], waiter) + 1
  waited = math.max(0, now - ticket)
end
return {0, value, redis.call('PTTL', KEYS[1]), digits(last), place, digits(ticket), digits(waited),
  call[1], call[2], call[3]}
