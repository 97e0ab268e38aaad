-- Lists active tasks.
--
-- KEYS[1]  active of the queue
-- ARGV[1]  queue
-- ARGV[2]  from   the index of the first that is listed
-- ARGV[3]  count  how many are listed at most; fewer if their messages are large
--
-- Returns {now in us, 1 if there may be more behind them, then for each: id, siding_kind, siding_lock, siding_resource,
-- siding_crashes, siding_attempt, siding_began, message, when its lease ends in Unix seconds with a fraction or '0'},
-- '' for each field that its hash does not have, and for the message of a task whose kind and lock its hash has.
--
-- Guarantee: it changes nothing.

-- include beside
-- include common

local MOST_BYTES = 1000000
local queue, from, count, rows, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), {digits(now), 0}, 0
for i, id in ipairs(call('LRANGE', KEYS[1], from, from + count - 1)) do
  local task = task_of(queue, id)
  local have = call('HMGET', task, 'siding_kind', 'siding_lock', 'siding_resource', 'siding_crashes', 'siding_attempt', 'siding_began')
  for n = 1, 6 do have[n] = have[n] or '' end
  have[7] = (have[1] == '' or have[2] == '') and call('HGET', task, 'msg') or ''
  bytes = bytes + #have[7]
  rows[#rows + 1] = id
  for n = 1, 7 do rows[#rows + 1] = have[n] end
  rows[#rows + 1] = call('ZSCORE', asynq(queue, 'lease'), id) or '0'
  if i == count or bytes > MOST_BYTES then
    rows[2] = 1
    break
  end
end
return rows
