-- Takes the lock, or joins its line. KEYS are those of line.lua, which comes after the
-- common case, so that this does not pay for it.
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
-- ARGV[11] when the waiter came, if that was before this call, us; or '0'
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

-- (take.lua)
local fence, found = take(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if fence then return {1, fence, found} end
local value = found

-- (join.lua)
-- (line.lua)
local waiter, nonce, grace, keep = ARGV[4], ARGV[8], ARGV[9], ARGV[10]
local last, lapsed = string.match(redis.call('GET', grant) or '0', '^(%d+)(%*?)$')
last = tonumber(last or '0')

local call = {'', '', '0'}
if not value then -- and somebody in line
  local first, reservation, ticket
  resume(line, paused, waiter, keep)
  if lapsed ~= '*' then
    -- The holder died: it is the turn of the first.
    first, reservation, ticket = reserve(waiter, ARGV[6] == '1', ARGV[7] == '1', nonce, grace, keep)
  end
  if not reservation then
    redis.call('SET', lock, ARGV[1], 'PX', ARGV[2])
    redis.call('ZREM', line, waiter)
    return {1, fenced(grant, ARGV[3]), '-1'}
  end
  if ticket then call = {reservation, first, ticket} end
  value = reservation
elseif value == ARGV[1] then
  redis.call('PEXPIRE', lock, ARGV[2])
  if last == 0 then return {1, fenced(grant, ARGV[3]), '-1'} end -- the grant was deleted or evicted
  return {1, digits(last), '-1'}
elseif begins(value, nonce) then
  local _, whose = reserved(value)
  local waits = redis.call('ZSCORE', line, whose)
  -- This very call made it, and its reply was lost: nobody has called who is still in line.
  if waits then call = {value, whose, digits(tonumber(waits))} end
end

local place, ticket, waited = 0, '0', '0'
if waiter ~= '' then place, ticket, waited = join(line, paused, waiter, ARGV[5], ARGV[11], keep) end
return {0, value, redis.call('PTTL', lock), digits(last), place, ticket, waited, call[1], call[2], call[3]}
