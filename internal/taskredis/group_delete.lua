-- Deletes an aggregation set and its tasks, but archives those that cannot be read. If the set was reclaimed
-- meanwhile, its tasks stay in the group.
local set, sets, group, groups, archived = unpack(KEYS)
local task, name = ARGV[1], ARGV[2] -- the ids of the tasks that cannot be read follow

for i = 3, #ARGV do
	local id = ARGV[i]
	if redis.call('ZREM', set, id) == 1 and type(redis.pcall('HSET', task .. id, 'state', 'archived')) == 'number' then
		redis.call('ZADD', archived, redis.call('TIME')[1], id)
	end
end
for _, id in ipairs(redis.call('ZRANGE', set, 0, -1)) do
	redis.call('DEL', task .. id)
end
redis.call('DEL', set)
redis.call('ZREM', sets, set)
if redis.call('EXISTS', group) == 0 then
	redis.call('SREM', groups, name)
end
