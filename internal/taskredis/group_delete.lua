-- Deletes an aggregation set and its tasks.
--
-- KEYS[1]  set       the tasks of the aggregation set by when they came
-- KEYS[2]  sets      all aggregation sets of the queue by when their time is over
-- KEYS[3]  group     the tasks that came to the group since
-- KEYS[4]  groups    the names of the queue's groups
-- KEYS[5]  archived  asynq's archived tasks
-- ARGV[1]  what the keys of tasks begin with
-- ARGV[2]  name of the group
-- ARGV[3...]  the ids of those that cannot be read: they are archived
--
-- Returns nothing.
--
-- Guarantee: if the set was reclaimed meanwhile, its tasks stay in the group.

local set, sets, group, groups, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task, name = ARGV[1], ARGV[2]

for i = 3, #ARGV do
  local id = ARGV[i] -- of one that cannot be read
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
