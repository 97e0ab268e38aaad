-- Lists tasks whose workers have fallen silent.
--
-- KEYS[1]  asynq:{queue}:lease
-- ARGV[1]  what the keys of the queue's tasks begin with
-- ARGV[2]  leases that end within so many seconds are not being renewed
-- ARGV[3]  how many of them, those that end first, are left out
-- ARGV[4]  how many are listed at most
--
-- Returns {id, attempt, encoded task, crashes so far, the attempt whose handler
-- had begun} for each, '' for what its hash does not have.
--
-- Guarantee: nothing is changed. Time is that of this server, so that all
-- members of a fleet see the same tasks.

local now = redis.call('TIME')[1]
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now + ARGV[2], 'LIMIT', ARGV[3], ARGV[4])
local silent = {}
for i, id in ipairs(ids) do
  local task = redis.call('HMGET', ARGV[1] .. id, 'siding_attempt', 'msg', 'siding_crashes', 'siding_begun')
  silent[i] = {id, task[1] or '', task[2] or '', task[3] or '', task[4] or ''}
end
return silent
