-- Puts the tasks of the stalest aggregation set back into their group, if its time is over, and answers the
-- key of the set. There is no answer if no set is stale.
local sets, groups = unpack(KEYS)
local prefix, hold = ARGV[1], tonumber(ARGV[2])

local now = tonumber(redis.call('TIME')[1])
local set = redis.call('ZRANGEBYSCORE', sets, '-inf', string.format('%.0f', now), 'LIMIT', 0, 1)[1]
if not set then
	return false
end
-- If the rest fails, as a key has a wrong type, the next call takes the next set.
redis.call('ZADD', sets, string.format('%.0f', now + hold), set)
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
