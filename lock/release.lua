-- Releases a lock: it is kept for the first in line who can come, or deleted
-- when there is none. Or it is kept for a waiter in no line, who comes by itself. KEYS are
-- those of line.lua, which comes after the common case, so that this does not pay for it.
--
-- ARGV[1]  token    the holder's
-- ARGV[2]  '1' when the client calls waiters by hand
-- ARGV[3]  '1' in a Cluster
-- ARGV[4]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[5]  grace of a reservation, ms
-- ARGV[6]  how long the mark of a reservation is kept, ms
-- ARGV[7]  the waiter in no line, or ''
-- ARGV[8]  and those that follow, if any: a seat
--
-- Returns {0} when the lock was not the token's, {1} when nobody has to be
-- called, {2, reservation, waiter, ticket} when that waiter has to be,
-- {3, token, fence, ...} when one has taken the seat.
--
-- Guarantees: somebody else's lock is left as it is, and then so is the line;
-- the same call made twice (its reply was lost) names the same reservation, but not who
-- took the seat; a reservation expires.

local value = redis.call('GET', KEYS[1])
local ours = value == ARGV[1]
if ours and ARGV[7] == '' and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return {1}
end

-- (take.lua)
-- (join.lua)
-- (line.lua)
if ours and ARGV[7] ~= '' then
  kept(ARGV[4] .. digits(us()) .. ':' .. ARGV[7], ARGV[5], ARGV[6])
  return {1}
end
if ours then return pass_on(ARGV[2] == '1', ARGV[3] == '1', ARGV[4], ARGV[5], ARGV[6], ARGV[8] and {unpack(ARGV, 8)}) end
if value and ARGV[8] and begins(value, 'siding:' .. ARGV[8] .. ':') then return {1} end
if value and begins(value, ARGV[4]) then return passed_on(value) end
return {0}
