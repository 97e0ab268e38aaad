-- Looks at locks for whose waiters nobody may be on the way: one that nobody holds is passed
-- on to the first in line.
--
-- KEYS     for each lock those of line.lua
-- ARGV[1]  '1' when the client calls waiters by hand
-- ARGV[2]  '1' in a Cluster
-- ARGV[3]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[4]  grace of a reservation, ms
-- ARGV[5]  how long the mark of a reservation is kept, ms
-- ARGV[6]  '1' when no group of waiters is known to be paused: those set aside come back
--
-- Returns for each ms left of what the lock holds, -1 where that has no end, -2 where it is free,
-- and -3 where nobody waits; or {ms left, reservation, waiter, ticket} when that waiter has to be
-- called.
--
-- Guarantees: a lock that is held or reserved is left as it is; the same call made twice (its
-- reply was lost) names the same reservations; reservations expire.

-- (take.lua)
-- (join.lua)
-- (line.lua)
local found, grace = {}, tonumber(ARGV[4])
for i = 1, #KEYS, 4 do
  lock, grant, line, paused = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  if ARGV[6] == '1' and redis.call('EXISTS', paused) == 1 then resume(line, paused, '', ARGV[5]) end
  local left, call = redis.call('PTTL', lock), nil
  if left == -2 then
    local waiter, reservation, ticket = reserve('', ARGV[1] == '1', ARGV[2] == '1', ARGV[3], ARGV[4], ARGV[5])
    if waiter then left = grace end
    if ticket then call = {left, reservation, waiter, ticket} end
  elseif left <= grace then -- it may be a reservation
    local value = redis.call('GET', lock)
    local again = value and begins(value, ARGV[3]) and passed_on(value, ARGV[1] == '1', ARGV[2] == '1')
    if again and again[1] == 2 then call = {left, again[2], again[3], again[4]} end
  end
  if not call and redis.call('EXISTS', line, paused) == 0 then left = -3 end
  found[#found + 1] = call or left
end
return found
