-- Reads some waiting tasks, at random.
--
-- KEYS[1]  retry set of the queue
-- ARGV[1]  queue
-- ARGV[2]  count  how many tasks of the retry set it reads at most
--
-- Returns {now in us, how many tasks the retry set has, how many of them it has read, and then the lock and the ticket of
-- each of those that wait}.
--
-- Guarantee: it changes nothing.

-- include beside
-- include common

local queue, ids = ARGV[1], call('ZRANDMEMBER', KEYS[1], ARGV[2])
local rows = {digits(now), call('ZCARD', KEYS[1]), #ids}
for _, id in ipairs(ids) do
  local task = call('HMGET', asynq(queue, 't:' .. id), 'siding_lock', 'siding_ticket', 'siding_until')
  if task[1] and task[2] and task[3] then
    for lock in each(task[1]) do rows[#rows + 1], rows[#rows + 2] = lock, task[2] end
  end
end
return rows
