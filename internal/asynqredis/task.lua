-- Reads a task.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:pending
-- KEYS[3]  asynq:{queue}:lease
-- KEYS[4]  asynq:{queue}:paused
-- KEYS[5]  and those that follow: asynq:{queue}:retry, :scheduled, :archived, :completed
-- ARGV[1]  task id
-- ARGV[2]  how many pending tasks are searched for the task
--
-- Returns {now in us, the task's state or '' if there is no such task, the encoded task, its rank
-- among the pending tasks or 0, how many are pending, when its lease ends in Unix seconds or '0',
-- its time in the set of its state in Unix seconds or '0', 1 if the queue is paused, siding_ticket,
-- siding_lock, siding_parked, siding_crashes, siding_losses, siding_attempt, siding_started,
-- pending_since in ns}, '' for each field that its hash does not have. The rank is 1 for the task
-- that a worker takes next.
--
-- Guarantee: it changes nothing.

local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
local found = redis.call('HMGET', KEYS[1], 'state', 'msg', 'siding_ticket', 'siding_lock', 'siding_parked', 'siding_crashes',
  'siding_losses', 'siding_attempt', 'siding_started', 'pending_since')
for i = 1, 10 do found[i] = found[i] or '' end
local state = found[1]
local rank, pending, lease, time = 0, 0, '0', '0'
if state == 'pending' then
  pending = redis.call('LLEN', KEYS[2])
  -- The right end is the head. The index counts from the left.
  local index = redis.call('LPOS', KEYS[2], ARGV[1], 'RANK', -1, 'MAXLEN', ARGV[2])
  if index then rank = pending - index end
elseif state == 'active' then
  lease = redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0'
else
  local sets = {retry = KEYS[5], scheduled = KEYS[6], archived = KEYS[7], completed = KEYS[8]}
  time = sets[state] and redis.call('ZSCORE', sets[state], ARGV[1]) or '0'
end
return {now, state, found[2], rank, pending, lease, time, redis.call('EXISTS', KEYS[4]), unpack(found, 3, 10)}
