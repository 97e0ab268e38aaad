-- Counts the tasks of a queue.
--
-- KEYS[1]  asynq:{queue}:pending
-- KEYS[2]  asynq:{queue}:active
-- KEYS[3]  asynq:{queue}:scheduled
-- KEYS[4]  asynq:{queue}:retry
-- KEYS[5]  asynq:{queue}:archived
-- KEYS[6]  asynq:{queue}:completed
-- KEYS[7]  asynq:{queue}:paused
-- KEYS[8]  asynq:{queue}:groups
-- KEYS[9]  siding:{queue}:contended
-- ARGV[1]  prefix of the keys of the queue's tasks
-- ARGV[2]  prefix of the keys of the queue's groups
-- ARGV[3]  of how many tasks in the retry set it reads whether they are parked
--
-- Returns {pending, active, scheduled, retry, archived, completed, 1 if the queue is paused,
-- tasks in groups, contended locks, how many of the retry set it has read, how many of those are
-- parked}.
--
-- Guarantees: it changes nothing. It reads all of a retry set that is small enough, else tasks at
-- random.

local retry, most = redis.call('ZCARD', KEYS[4]), tonumber(ARGV[3])
local ids
if retry <= most then
  ids = redis.call('ZRANGE', KEYS[4], 0, -1)
else
  ids = redis.call('ZRANDMEMBER', KEYS[4], most)
end
local parked = 0
for _, id in ipairs(ids) do
  -- The guard gives each parked task a ticket, be it an empty one. A dequeue removes it.
  if redis.call('HEXISTS', ARGV[1] .. id, 'siding_ticket') == 1 then parked = parked + 1 end
end
local grouped = 0
for _, group in ipairs(redis.call('SMEMBERS', KEYS[8])) do grouped = grouped + redis.call('ZCARD', ARGV[2] .. group) end
return {redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]), retry, redis.call('ZCARD', KEYS[5]),
  redis.call('ZCARD', KEYS[6]), redis.call('EXISTS', KEYS[7]), grouped, redis.call('ZCARD', KEYS[9]), #ids, parked}
