-- Gives a lease to active tasks that have none. asynq finds dead workers only by the leases of
-- their tasks. So nobody would miss a task without a lease.
--
-- KEYS[1]  asynq:{queue}:active
-- KEYS[2]  asynq:{queue}:lease
-- ARGV[1]  how long the lease lasts, s
--
-- Returns how many tasks it has given a lease.
--
-- Guarantees: a lease that is there stays as it is. A task that is not active gets none. A live
-- worker renews its task's new lease like any other.

local ids, given = redis.call('LRANGE', KEYS[1], 0, -1), 0
local ends = redis.call('TIME')[1] + ARGV[1]
for from = 1, #ids, 1000 do
  local some = {unpack(ids, from, math.min(from + 999, #ids))}
  for i, lease in ipairs(redis.call('ZMSCORE', KEYS[2], unpack(some))) do
    if not lease then given = given + redis.call('ZADD', KEYS[2], ends, some[i]) end
  end
end
return given
