-- Takes a waiter out of the line; a lock that is reserved for it is passed on.
-- KEYS are those of line.lua.
--
-- ARGV[1]  waiter
-- ARGV[2]  '' or the reservation of the waiter, without which nothing is done
-- ARGV[3]  '1' when the client calls waiters by hand
-- ARGV[4]  '1' in a Cluster
-- ARGV[5]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[6]  grace of a reservation, ms
-- ARGV[7]  how long the mark of a reservation is kept, ms
--
-- Returns {1} when nobody has to be called, {2, reservation, waiter, ticket}
-- when that waiter has to be.
--
-- Guarantees: a waiter whose reservation no longer stands keeps its place; the
-- same call made twice (its reply was lost) names the same reservation.

-- (take.lua)
-- (line.lua)
local value = redis.call('GET', KEYS[1])
if value and begins(value, ARGV[5]) then return passed_on(value) end
if ARGV[2] ~= '' and value ~= ARGV[2] then return {1} end
redis.call('ZREM', KEYS[3], ARGV[1])
local _, whose = reserved(value)
if whose ~= ARGV[1] then return {1} end
return pass_on(ARGV[3] == '1', ARGV[4] == '1', ARGV[5], ARGV[6], ARGV[7])
