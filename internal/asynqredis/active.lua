-- Lists active tasks.
--
-- KEYS[1]  asynq:{queue}:active
-- KEYS[2]  asynq:{queue}:lease
-- ARGV[1]  prefix of the keys of the queue's tasks
-- ARGV[2]  the index of the first that is listed
-- ARGV[3]  how many are listed at most
--
-- Returns {now in us, {id, encoded task, siding_crashes, siding_attempt, siding_started, when its
-- lease ends in Unix seconds or '0'}, ...}, '' for each field that its hash does not have.
--
-- Guarantee: it changes nothing.

local t = redis.call('TIME')
local rows = {string.format('%.0f', t[1] * 1000000 + t[2])}
for _, id in ipairs(redis.call('LRANGE', KEYS[1], ARGV[2], ARGV[2] + ARGV[3] - 1)) do
  local task = redis.call('HMGET', ARGV[1] .. id, 'msg', 'siding_crashes', 'siding_attempt', 'siding_started')
  rows[#rows + 1] = {id, task[1] or '', task[2] or '', task[3] or '', task[4] or '', redis.call('ZSCORE', KEYS[2], id) or '0'}
end
return rows
