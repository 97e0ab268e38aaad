-- Lists tasks whose leases nobody renews.
--
-- KEYS[1]  asynq:{queue}:lease
-- ARGV[1]  prefix of the keys of the queue's tasks
-- ARGV[2]  nobody renews a lease that ends within so many seconds
-- ARGV[3]  how many of them are skipped, those first that end first
-- ARGV[4]  how many are listed at most
--
-- Returns {id, attempt, encoded task, crashes so far, the attempt whose handler
-- has started} for each, '' for each field that its hash does not have.
--
-- Guarantees: the script changes nothing. The clock of this server counts, so all members of a
-- fleet see the same tasks.

local now = redis.call('TIME')[1]
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now + ARGV[2], 'LIMIT', ARGV[3], ARGV[4])
local orphans = {}
for i, id in ipairs(ids) do
  local task = redis.call('HMGET', ARGV[1] .. id, 'siding_attempt', 'msg', 'siding_crashes', 'siding_started')
  orphans[i] = {id, task[1] or '', task[2] or '', task[3] or '', task[4] or ''}
end
return orphans
