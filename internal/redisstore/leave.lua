-- Takes a waiter out of the wait queue, and hands off a lock that is reserved for it.
-- KEYS are those of queue.lua.
--
-- ARGV[1]  waiter
-- ARGV[2]  the reservation of the waiter, without which nothing is done; or ''
-- ARGV[3]  '1' when the client wakes waiters
-- ARGV[4]  '1' in a Cluster
-- ARGV[5]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[6]  hand-off timeout of a reservation, ms
-- ARGV[7]  retention of the mark of a reservation, ms
-- ARGV[8]  '1' when the waiter cannot come because its group is paused: it leaves with its
--          group, and keeps its ticket
-- ARGV[9]  rule of the lock, see permits.lua; or ''
-- ARGV[10] the ticket by which the client has tried to wake the waiter; '0' if it has not
--
-- Returns {1}; {1, ms} when the client has to sweep the lock after that time; or {2, reservation,
-- waiter, ticket, key of what is reserved} when the client has to wake that waiter.
--
-- Guarantees: a waiter keeps its position if its reservation no longer stands, or if its ticket is
-- another one by now: then the client has to wake it by that. The same call made twice (its reply was
-- lost) names the same reservation, or says again when the client has to sweep the lock.

-- (take.lua)
-- (join.lua)
-- (queue.lua)
rule = rule_of(ARGV[9])
if rule and not base then
  for number, value in pairs(permits_of(lock)) do
    local _, whose = reserved(value)
    if whose == ARGV[1] or begins(value, ARGV[5]) then
      base = lock
      lock = permit_key(base, number) -- apart: the Lua of miniredis assigns lock before it reads lock for base
      break
    end
  end
end
local value = redis.call('GET', lock)
if value and begins(value, ARGV[5]) then return handed_off(value, ARGV[3] == '1', ARGV[4] == '1') end
if ARGV[2] ~= '' and value ~= ARGV[2] then return {1, rule and next_sweep(base or lock, rule)} end
local ticket = ARGV[10] ~= '0' and redis.call('ZSCORE', queue, ARGV[1])
if ticket and digits(tonumber(ticket)) ~= ARGV[10] then
  -- It has taken the position of an equal waiter since, see equal.lua: it comes by that ticket.
  return {2, value, ARGV[1], digits(tonumber(ticket)), lock}
end
if ARGV[8] == '1' then
  pause_group(ARGV[1], ARGV[7])
else
  redis.call('ZREM', queue, ARGV[1])
  redis.call('ZREM', paused, ARGV[1])
end
local _, whose = reserved(value)
if whose ~= ARGV[1] then return {1, rule and next_sweep(base or lock, rule)} end
return hand_off(ARGV[3] == '1', ARGV[4] == '1', ARGV[5], ARGV[6], ARGV[7])
