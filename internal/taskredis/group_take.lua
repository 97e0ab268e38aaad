-- Moves the tasks of a group that is ready into an aggregation set of their own.
--
-- KEYS[1]  group  the tasks of the group by when they came
-- KEYS[2]  set    the aggregation set, whose name nobody else has
-- KEYS[3]  sets   all aggregation sets of the queue by when their time is over
-- ARGV[1]  grace period, s
-- ARGV[2]  longest delay, s; 0 for none
-- ARGV[3]  largest size; 0 for none
-- ARGV[4]  seconds that the set has
--
-- Returns the ids of the tasks, the oldest first; none if the group is not ready.
--
-- Guarantee: the same call made twice (its answer was lost) returns the same tasks.
--
-- The data is that of asynq's own script. But the name of a group that becomes empty stays in the list of
-- groups until the set is deleted: asynq takes it out here, does not put it back when it reclaims the set of
-- a server that has died, and nobody looks at those tasks again before another one comes.

local group, set, sets = KEYS[1], KEYS[2], KEYS[3]
local grace, delay, size, timeout = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- Each call has a set of its own, so the set exists if this very call has come before and its answer was lost.
if redis.call('EXISTS', set) == 1 then
  return redis.call('ZRANGE', set, 0, -1)
end
local waiting = redis.call('ZCARD', group)
if waiting == 0 then
  return {}
end
local now = tonumber(redis.call('TIME')[1])
local function came(rank)
  return tonumber(redis.call('ZRANGE', group, rank, rank, 'WITHSCORES')[2])
end
local full = size > 0 and waiting >= size
if not (full or delay > 0 and came(0) <= now - delay or came(-1) <= now - grace) then
  return {}
end

redis.call('ZADD', sets, string.format('%.0f', now + timeout), set) -- first, so no set is ever unknown
if full and waiting > size then
  local oldest = redis.call('ZRANGE', group, 0, size - 1, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    redis.call('ZADD', set, oldest[i + 1], oldest[i])
  end
  redis.call('ZREMRANGEBYRANK', group, 0, size - 1)
else
  redis.call('RENAME', group, set)
end
return redis.call('ZRANGE', set, 0, -1)
