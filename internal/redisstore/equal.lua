-- Says who else waits for a lock, and registers one of several waiters that are equal.
--
-- KEYS[1]  queue   the wait queue
-- KEYS[2]  paused  waiters of paused groups
-- KEYS[3]  equal   which of equal waiters is registered: '<when it came, us> <waiter>'; or any key of
--                  the lock for a waiter that has no equals
-- ARGV[1]  waiter
-- ARGV[2]  when it came, us
-- ARGV[3]  for how long it is registered, ms; or '0' for a waiter that has no equals
-- ARGV[4]  a waiter that does not wait any more, whatever the wait queue says; or ''
-- ARGV[5]  the ticket that the waiter gets in place of its own when it is registered; or '0'
-- ARGV[6]  it is not registered if more than so many wait, as it is not to wait then; or '0'
--
-- Returns {the time, us; how many wait; '' or the equal one that is registered; its ticket; when it
-- came}.
--
-- Guarantees: as long as the one that is registered is in the wait queue, no other is, unless ARGV[4]
-- names it. A waiter that is not in the wait queue is not registered. One that is not registered
-- keeps its own ticket. The same call made twice has the effect of one.

local queue, paused, equal, waiter = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local t = redis.call('TIME')
local answer = {t[1] .. string.format('%06d', t[2]), redis.call('ZCARD', queue) + redis.call('ZCARD', paused), '', '0', '0'}
if ARGV[3] == '0' then return answer end

local came, other = string.match(redis.call('GET', equal) or '', '^(%d+) (.*)$')
if other and other ~= waiter and other ~= ARGV[4] then
  local ticket = redis.call('ZSCORE', queue, other) or redis.call('ZSCORE', paused, other)
  if ticket then
    answer[3], answer[4], answer[5] = other, string.format('%.0f', tonumber(ticket)), came
    return answer
  end
end
if other == waiter and came == ARGV[2] and ARGV[6] ~= '0' then -- by an earlier try of this call, when fewer waited
  answer[2] = math.min(answer[2], tonumber(ARGV[6]))
end
local at = redis.call('ZSCORE', queue, waiter) and queue or redis.call('ZSCORE', paused, waiter) and paused
if not at or ARGV[6] ~= '0' and answer[2] > tonumber(ARGV[6]) then return answer end
-- A waiter that took over an earlier position asks again under the ticket of that position. The time
-- at which it came itself stays. A later task of the same id came after that time.
if other ~= waiter or tonumber(came) < tonumber(ARGV[2]) then came = ARGV[2] end
redis.call('SET', equal, came .. ' ' .. waiter, 'PX', ARGV[3])
if ARGV[5] ~= '0' then redis.call('ZADD', at, ARGV[5], waiter) end
return answer
