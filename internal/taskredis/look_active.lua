-- Lists active tasks.
--
-- KEYS[1]  active of the queue
-- ARGV[1]  queue
-- ARGV[2]  from   the index of the first that is listed
-- ARGV[3]  count  how many are listed at most
--
-- Returns {now in us, then for each: id, message, siding_crashes, siding_attempt, siding_lock, when its lease ends in
-- Unix seconds with a fraction or '0'}, '' for each field that its hash does not have.
--
-- Guarantee: it changes nothing.

-- include beside
-- include common

local queue, from, rows = ARGV[1], tonumber(ARGV[2]), {digits(now)}
for _, id in ipairs(call('LRANGE', KEYS[1], from, from + ARGV[3] - 1)) do
  local task = call('HMGET', asynq(queue, 't:' .. id), 'msg', 'siding_crashes', 'siding_attempt', 'siding_lock')
  for _, value in ipairs({id, task[1] or '', task[2] or '', task[3] or '', task[4] or '', call('ZSCORE', asynq(queue, 'lease'), id) or '0'}) do
    rows[#rows + 1] = value
  end
end
return rows
