-- Takes the lock, or joins its wait queue. KEYS are those of queue.lua. The common case comes
-- before queue.lua, and so does not pay for it.
--
-- ARGV[1]  token    unique per acquisition
-- ARGV[2]  ttl of the lock, ms
-- ARGV[3]  retention of the fencing token, ms
-- ARGV[4]  waiter   '' for a caller that does not queue
-- ARGV[5]  how long the waiter has waited already, us: it comes before those who are newer
-- ARGV[6]  '1' when the client wakes waiters
-- ARGV[7]  '1' in a Cluster
-- ARGV[8]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[9]  hand-off timeout of a reservation, ms
-- ARGV[10] retention of the wait queue and of the mark, ms
-- ARGV[11] when the waiter came, if that was before this call, us; or '0'
--
-- Returns {1, fence, time since the reservation, its nonce} as take.lua returns them when held, else
-- {0, value, ms left, last fence, position, ticket, '' or a reservation whose waiter
-- the client has to wake, that waiter, its ticket}.
--
-- A lock key of another type is an error, and left as it is. So is a queue of
-- another type, but then the lock may stay taken for its ttl.
--
-- Guarantees: at most one token holds the lock. The fence is above all earlier
-- ones. The same call made twice (its reply was lost) holds what it held, or
-- names the reservation that it made. A holder is never in the wait queue. A later
-- waiter overtakes nobody there, except when a reservation has expired, when
-- the first cannot be woken, or when the clock has stepped back.

-- (take.lua)
local fence, found, by = take(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if fence then return {1, fence, found, by} end
local value = found

-- (join.lua)
-- (queue.lua)
local waiter, nonce, timeout, retention = ARGV[4], ARGV[8], ARGV[9], ARGV[10]
local last, expired = string.match(redis.call('GET', grant) or '0', '^(%d+)(%*?)$')
last = tonumber(last or '0')

local wake = {'', '', '0'}
if not value then -- and somebody queued
  local first, reservation, ticket
  resume(queue, paused, waiter, retention)
  if expired ~= '*' then
    -- The holder died: the lock is for the first in the wait queue.
    first, reservation, ticket = reserve(waiter, ARGV[6] == '1', ARGV[7] == '1', nonce, timeout, retention)
  end
  if not reservation then
    redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
    redis.call('ZREM', queue, waiter)
    return {1, fenced(grant, ARGV[3]), '-1', ''}
  end
  if ticket then wake = {reservation, first, ticket} end
  value = reservation
elseif value == ARGV[1] then
  redis.call('PEXPIRE', lock, ARGV[2])
  if last == 0 then return {1, fenced(grant, ARGV[3]), '-1', ''} end -- the grant was deleted or evicted
  return {1, digits(last), '-1', ''}
elseif begins(value, nonce) then
  local _, whose = reserved(value)
  local waits = redis.call('ZSCORE', queue, whose)
  -- An earlier try of this call made the reservation, and its reply was lost. Nobody has woken
  -- a waiter who is still queued.
  if waits then wake = {value, whose, digits(tonumber(waits))} end
end

local position, ticket = 0, '0'
if waiter ~= '' then position, ticket = join(queue, paused, waiter, ARGV[5], ARGV[11], retention) end
return {0, value, redis.call('PTTL', lock), digits(last), position, ticket, wake[1], wake[2], wake[3]}
