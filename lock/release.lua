-- Releases a lock: it is kept for the first in line who can come, or deleted
-- when there is none. KEYS are those of line.lua.
--
-- ARGV[1]  token    the holder's
-- ARGV[2]  '1' when the client calls waiters by hand
-- ARGV[3]  '1' in a Cluster
-- ARGV[4]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[5]  grace of a reservation, ms
-- ARGV[6]  how long the mark of a reservation is kept, ms
--
-- Returns {0} when the lock was not the token's, {1} when nobody has to be
-- called, {2, reservation, waiter, ticket} when that waiter has to be.
--
-- Guarantees: somebody else's lock is left as it is, and then so is the line;
-- the same call made twice (its reply was lost) names the same reservation; a
-- reservation expires.

local value = redis.call('GET', KEYS[1])
if value == ARGV[1] then return pass_on(ARGV[2] == '1', ARGV[3] == '1', ARGV[4], ARGV[5], ARGV[6]) end
if value and begins(value, ARGV[4]) then return passed_on(value) end
return {0}
