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
-- ARGV[8]  '1' when the waiter cannot come because its group is paused: it is set aside, and
--          keeps its ticket
--
-- Returns {1} when nobody has to be called, {2, reservation, waiter, ticket}
-- when that waiter has to be.
--
-- Guarantees: a waiter whose reservation no longer stands keeps its place; the
-- same call made twice (its reply was lost) names the same reservation.

-- (take.lua)
-- (join.lua)
-- (line.lua)
local value = redis.call('GET', lock)
if value and begins(value, ARGV[5]) then return passed_on(value, ARGV[3] == '1', ARGV[4] == '1') end
if ARGV[2] ~= '' and value ~= ARGV[2] then return {1} end
if ARGV[8] == '1' then
  set_aside(ARGV[1], ARGV[7])
else
  redis.call('ZREM', line, ARGV[1])
  redis.call('ZREM', paused, ARGV[1])
end
local _, whose = reserved(value)
if whose ~= ARGV[1] then return {1} end
return pass_on(ARGV[3] == '1', ARGV[4] == '1', ARGV[5], ARGV[6], ARGV[7])
