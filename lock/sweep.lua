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
-- Returns for each {how many wait, ms left of what the lock holds or below 0, '' or a
-- reservation whose waiter has to be called, that waiter, its ticket}.
--
-- Guarantees: a lock that is held or reserved is left as it is; the same call made twice (its
-- reply was lost) names the same reservations; reservations expire.

-- (take.lua)
-- (join.lua)
-- (line.lua)
local found = {}
for i = 1, #KEYS, 4 do
  lock, grant, line, paused = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local call = {'', '', '0'}
  if ARGV[6] == '1' then resume(line, paused, '') end
  local value = redis.call('GET', lock)
  if not value then
    local waiter, reservation, ticket = reserve('', ARGV[1] == '1', ARGV[2] == '1', ARGV[3], ARGV[4], ARGV[5])
    if ticket then call = {reservation, waiter, ticket} end
  elseif begins(value, ARGV[3]) then
    local again = passed_on(value)
    if again[1] == 2 then call = {again[2], again[3], again[4]} end
  end
  found[#found + 1] = {redis.call('ZCARD', line) + redis.call('ZCARD', paused), redis.call('PTTL', lock), unpack(call)}
end
return found
