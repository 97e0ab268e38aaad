-- Reads some waiting tasks, at random.
--
-- KEYS[1]  asynq:{queue}:retry
-- ARGV[1]  prefix of the keys of the queue's tasks
-- ARGV[2]  how many tasks of the retry set it reads at most
--
-- Returns {now in us, how many tasks the retry set has, how many of them it has read, {lock, ticket
-- in us, ... of those that wait for a lock}}.
--
-- Guarantee: it changes nothing.

local t = redis.call('TIME')
local ids, found = redis.call('ZRANDMEMBER', KEYS[1], ARGV[2]), {}
for _, id in ipairs(ids) do
  local task = redis.call('HMGET', ARGV[1] .. id, 'siding_lock', 'siding_ticket')
  if task[1] and task[1] ~= '' and task[2] then found[#found + 1], found[#found + 2] = task[1], task[2] end
end
return {string.format('%.0f', t[1] * 1000000 + t[2]), redis.call('ZCARD', KEYS[1]), #ids, found}
