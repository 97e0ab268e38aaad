-- Releases a lock, or passes on a reservation: the lock is kept for the head
-- of the line, or deleted when nobody is in line.
--
-- KEYS[1]  lock
-- KEYS[2]  grant    the last fencing token, see acquire.lua
-- KEYS[3]  line
-- ARGV[1]  what is released: the holder's token, or a reservation
-- ARGV[2]  grace of a reservation, ms; 0 to reserve for nobody
-- ARGV[3]  how long the mark of a reservation is kept, ms
-- ARGV[4]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[5]  '' or the waiter of the reservation, to take out of the line first
--
-- Returns {0} when the lock was not ARGV[1]'s, {1} when it is free now,
-- {2, reservation, waiter, ticket} when it is kept for that waiter.
--
-- Guarantees: somebody else's lock is left as it is, and then so is the line;
-- the same call made twice (its reply was lost) names the same reservation; a
-- reservation expires.

local value = redis.call('GET', KEYS[1])
if value ~= ARGV[1] then
  if value and string.sub(value, 1, #ARGV[4]) == ARGV[4] then
    local waiter = string.match(value, '^%d+:(.*)$', #ARGV[4] + 1)
    return {2, value, waiter, redis.call('ZSCORE', KEYS[3], waiter) or '0'}
  end
  return {0}
end
if ARGV[5] ~= '' then redis.call('ZREM', KEYS[3], ARGV[5]) end

local head = tonumber(ARGV[2]) > 0 and redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES') or {}
if not head[1] then
  redis.call('DEL', KEYS[1])
  return {1}
end
local t = redis.call('TIME')
local reservation = ARGV[4] .. string.format('%.0f', t[1] * 1000000 + t[2]) .. ':' .. head[1]
redis.call('SET', KEYS[1], reservation, 'PX', ARGV[2])
local last = string.match(redis.call('GET', KEYS[2]) or '0', '^%d+') or '0'
redis.call('SET', KEYS[2], last .. '*', 'PX', ARGV[3])
return {2, reservation, head[1], string.format('%.0f', tonumber(head[2]))}
