-- Ends an attempt whose handler has succeeded, releases its lock, and takes the next task for
-- the worker that becomes free. Three functions come before it:
--   release_lock(KEYS, ARGV)   redisstore/release.lua
--   dequeue(KEYS, ARGV)        dequeue.lua with all its parts
--   taken(asynq, with)         taken.lua
-- release_lock is not called in a Cluster, nor if the attempt has no lock on this Redis.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:active
-- KEYS[3]  asynq:{queue}:lease
-- KEYS[4]  asynq:{queue}:completed
-- KEYS[5]  asynq:{queue}:processed:<day>
-- KEYS[6]  asynq:{queue}:processed
-- KEYS[7]  and those that follow: the KEYS of release_lock, if any
-- ARGV[1]  the attempt's name
-- ARGV[2]  the task's id
-- ARGV[3]  when the count of the day ends, Unix seconds
-- ARGV[4]  the task's key of uniqueness, or ''
-- ARGV[5]  the encoded task that is kept as completed, or ''
-- ARGV[6]  until when asynq keeps that, Unix seconds
-- ARGV[7]  how many arguments release_lock has; then these
-- then     how many queues the next task may come from; then for each, in the order of the
--          dequeues, its name, and the prefix of the names of its waiters
-- then     when the next attempt's lease ends, Unix seconds; its name; and ARGV[5] of
--          dequeue.lua and what follows there
--
-- Returns {'done', what release_lock returns or false, the number of the queue that a task was
-- taken from or 0, what dequeue.lua returns of that queue or false}. In place of 'done' it returns
-- 'over' when the attempt is not the task's latest, or no longer active; and 'lost' when the lock
-- was lost, which leaves the attempt as it is.
--
-- Guarantees: the task ends in the same state as after asynq's own script. An attempt whose lock
-- was lost does not end. At most one task is taken, which may be the next waiter of the lock. The
-- same call made twice (its reply was lost) changes nothing, and names the same next task, if that is
-- still active.

local releases = tonumber(ARGV[7])
local at = 8 + releases
local queues = tonumber(ARGV[at])
local rest = at + 1 + 2 * queues

local found = redis.call('HMGET', KEYS[1], 'siding_attempt', 'state')
local over = found[1] ~= ARGV[1] or found[2] ~= 'active'
local released = false
if releases > 0 then
  released = release_lock({unpack(KEYS, 7)}, {unpack(ARGV, 8, 7 + releases)})
  if not over and released[1] == 0 then return {'lost', released, 0, false} end
end

-- Calls try for one queue after the other. Returns the number of the first queue for which try
-- returns something, and what it returns.
local function each(try)
  for i = 1, queues do
    local queue = ARGV[at + 2 * i - 1]
    local got = try('asynq:{' .. queue .. '}:', 'siding:{' .. queue .. '}:', ARGV[at + 2 * i])
    if got then return i, got end
  end
  return 0, false
end

if over then
  -- A waiter has started: it is the next task.
  if released and released[1] == 3 then return {'over', released, 0, false} end
  local from, got = each(function(asynq) return taken(asynq, {unpack(ARGV, rest)}) end)
  -- An earlier try of this call took a task, so it released the lock, whoever has that by now.
  if got and released and released[1] == 0 then released = {1} end
  return {'over', released, from, got}
end

redis.call('LREM', KEYS[2], '0', ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
if ARGV[5] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('ZADD', KEYS[4], ARGV[6], ARGV[2])
  redis.call('HSET', KEYS[1], 'msg', ARGV[5], 'state', 'completed')
end
if redis.call('INCR', KEYS[5]) == 1 then redis.call('EXPIREAT', KEYS[5], ARGV[3]) end
-- After the largest number, asynq also starts again at 1.
if type(redis.pcall('INCR', KEYS[6])) ~= 'number' then redis.call('SET', KEYS[6], 1) end
if ARGV[4] ~= '' and redis.call('GET', ARGV[4]) == ARGV[2] then redis.call('DEL', ARGV[4]) end

if released and released[1] == 3 then return {'done', released, 0, false} end -- a waiter is the next task
return {'done', released, each(function(asynq, siding, waiters)
  -- An error must not hide that the attempt has ended.
  local ok, got = pcall(dequeue, {asynq .. 'pending', asynq .. 'paused', asynq .. 'active', asynq .. 'lease', siding .. 'notify',
    asynq .. 'retry', siding .. 'contended'}, {ARGV[rest], asynq .. 't:', ARGV[rest + 1], waiters, unpack(ARGV, rest + 2)})
  return ok and got
end)}
