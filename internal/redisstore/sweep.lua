-- Hands off locks that nobody holds to the first in their wait queues. Their holders have gone
-- without a release.
--
-- KEYS     for each lock those of queue.lua
-- ARGV[1]  '1' when the client wakes waiters
-- ARGV[2]  '1' in a Cluster
-- ARGV[3]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[4]  hand-off timeout of a reservation, ms
-- ARGV[5]  retention of the mark of a reservation, ms
-- ARGV[6]  '1' when no group of waiters is known to be paused: those of paused groups come back
-- ARGV[7]  how old a reservation is whose waiter should have been woken, ms; '0' for none
--
-- Returns for each the ms left of what the lock holds: -1 for no end, -2 for a free lock, -3 if
-- nobody waits; or {ms left, reservation, waiter, ticket} when the client has to wake that waiter.
--
-- Guarantees: a lock that is held or reserved stays as it is. The same call made twice (its
-- reply was lost) names the same reservations. Reservations expire.

-- (take.lua)
-- (join.lua)
-- (queue.lua)
local found, timeout = {}, tonumber(ARGV[4])
for i = 1, #KEYS, 4 do
  lock, grant, queue, paused = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  if ARGV[6] == '1' and redis.call('EXISTS', paused) == 1 then resume(queue, paused, '', ARGV[5]) end
  local left, wake = redis.call('PTTL', lock), nil
  if left == -2 then
    local waiter, reservation, ticket = reserve('', ARGV[1] == '1', ARGV[2] == '1', ARGV[3], ARGV[4], ARGV[5])
    if waiter then left = timeout end
    if ticket then wake = {left, reservation, waiter, ticket} end
  elseif left <= timeout then -- it may be a reservation
    local value = redis.pcall('GET', lock) -- an error if another program has put another type there
    local again = unheard(value, ARGV[3], ARGV[7]) and handed_off(value, ARGV[1] == '1', ARGV[2] == '1')
    if again and again[1] == 2 then wake = {left, again[2], again[3], again[4]} end
  end
  if not wake and redis.call('EXISTS', queue, paused) == 0 then left = -3 end
  found[#found + 1] = wake or left
end
return found
