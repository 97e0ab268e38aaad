-- Reserves the free permits of locks for the first in their wait queues. It does for locks with
-- rules what sweep.lua does for those without.
--
-- KEYS     for each lock those of queue.lua
-- ARGV[1]  '1' when the client wakes waiters
-- ARGV[2]  '1' in a Cluster
-- ARGV[3]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[4]  hand-off timeout of a reservation, ms
-- ARGV[5]  retention of the mark of a reservation, ms
-- ARGV[6]  '1' when no group of waiters is known to be paused: those of paused groups come back
-- ARGV[7]  how old a reservation is whose waiter should have been woken, ms; '0' for none
-- ARGV[8]  and those that follow: for each lock its rule, see permits.lua
--
-- Returns for each {ms left of the permit that expires first: -2 if none is held, -3 if nobody
-- waits; in how many ms the rates allow a start or -1; then, for each waiter that the client has to
-- wake, the key of its permit, the reservation, the waiter and its ticket}.
--
-- Guarantees: a permit that is held or reserved stays as it is. The same call made twice (its
-- reply was lost) names the same reservations, and makes no more. Reservations expire. A call makes
-- 20 reservations at most, as each reads all permits of its lock. For a lock that has more to reserve
-- it returns 1 ms.

-- (take.lua)
-- (join.lua)
-- (queue.lua)
local stepwise, cluster, nonce, timeout, retention = ARGV[1] == '1', ARGV[2] == '1', ARGV[3], ARGV[4], ARGV[5]
local MOST = 20
local answers, made = {}, 0
for i = 1, #KEYS, 4 do
  lock, grant, queue, paused = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  base, rule = lock, rule_of(ARGV[8 + (i - 1) / 4])
  if ARGV[6] == '1' and redis.call('EXISTS', paused) == 1 then resume(queue, paused, '', retention) end
  local answer, again = {-2, -1}, false
  if not to_permit(base, grant) then
    answer[1] = redis.call('PTTL', base)
  else
    for number, value in pairs(permits_of(base)) do
      if unheard(value, nonce, ARGV[7]) then
        again = again or begins(value, nonce)
        lock = permit_key(base, number)
        local wake = handed_off(value, stepwise, cluster)
        for j = 1, wake[1] == 2 and 4 or 0 do answer[#answer + 1] = ({lock, wake[2], wake[3], wake[4]})[j] end
      end
    end
    local number, later = free_permit(base, rule)
    while number and made < MOST and not again do
      lock = permit_key(base, number)
      local waiter, reservation, ticket = reserve('', stepwise, cluster, nonce, timeout, retention)
      if waiter then
        made = made + 1
        for j = 1, ticket and 4 or 0 do answer[#answer + 1] = ({lock, reservation, waiter, ticket})[j] end
        number, later = free_permit(base, rule)
      else
        number = nil
      end
    end
    answer[2] = later or number and not again and 1 or -1
    for n in pairs(permits_of(base)) do
      local left = redis.call('PTTL', permit_key(base, n))
      if answer[1] == -2 or left < answer[1] then answer[1] = left end
    end
  end
  if #answer == 2 and redis.call('EXISTS', queue, paused) == 0 then answer = {-3, -1} end
  answers[#answers + 1] = answer
end
return answers
