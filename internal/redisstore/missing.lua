-- Looks for waiters in their wait queues, and may queue those again that are missing there.
--
-- KEYS     for each waiter two: queue and paused, see queue.lua
-- ARGV[1]  '1' to queue them again
-- ARGV[2]  retention of a wait queue, ms
-- ARGV[3]  and those that follow: for each waiter its name and its ticket
--
-- Returns for each 1 if it was in neither, else 0.
--
-- Guarantee: a waiter who is queued keeps its position.

local missing = {}
for i = 1, #KEYS, 2 do
  local queue, waiter = KEYS[i], ARGV[i + 2]
  local there = redis.call('ZSCORE', queue, waiter) or redis.call('ZSCORE', KEYS[i + 1], waiter)
  if not there and ARGV[1] == '1' then
    redis.call('ZADD', queue, ARGV[i + 3], waiter)
    redis.call('PEXPIRE', queue, ARGV[2])
  end
  missing[#missing + 1] = there and 0 or 1
end
return missing
