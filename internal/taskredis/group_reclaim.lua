-- Puts the tasks of the stalest aggregation set back into their group, if its time is over.
--
-- KEYS[1]  sets    all aggregation sets of the queue by when their time is over
-- KEYS[2]  groups  the names of the queue's groups
-- ARGV[1]  what the keys of groups begin with
-- ARGV[2]  seconds after which the set is looked at again if this fails in the middle
--
-- Returns the key of the set; nil if none is stale.
--
-- Guarantee: a task of the set is in its group before the set is deleted.

local sets, groups = KEYS[1], KEYS[2]
local prefix, timeout = ARGV[1], tonumber(ARGV[2])

local now = tonumber(redis.call('TIME')[1])
local set = redis.call('ZRANGEBYSCORE', sets, '-inf', string.format('%.0f', now), 'LIMIT', 0, 1)[1]
if not set then
  return false
end
-- If the rest fails, as a key has a wrong type, the next call takes the next set.
redis.call('ZADD', sets, string.format('%.0f', now + timeout), set)
local group = string.match(set, '^(.*):[^:]*$')
local tasks = redis.call('ZRANGE', set, 0, -1, 'WITHSCORES')
for i = 1, #tasks, 2 do
  redis.call('ZADD', group, tasks[i + 1], tasks[i])
end
if #tasks > 0 then
  redis.call('SADD', groups, string.sub(group, #prefix + 1))
end
redis.call('DEL', set)
redis.call('ZREM', sets, set)
return set
