-- Counts the tasks of a queue.
--
-- KEYS[1]  pending of the queue
-- ARGV[1]  queue
-- ARGV[2]  lines  how many of its lines are counted at most
--
-- Returns {pending, active, scheduled, retry, archived, completed, 1 if the queue is paused, tasks in groups, lines, how many
-- of these were counted, tasks that wait in these, held lines, those of them that have stopped, 1 if tasks with several locks
-- were counted by a rule of thumb}.
--
-- A task that waits for several locks is in the line of each. There it counts for its part. How many locks the last of a line
-- needs holds for all of the line, as no more tasks than that one are read.
--
-- Guarantee: it changes nothing.

-- include beside
-- include common

local queue, most = ARGV[1], tonumber(ARGV[2])
local ready, held = siding(queue, 'ready'), siding(queue, 'held')
local lines, lines_held, locks = call('ZCARD', ready), call('ZCARD', held), nil
if lines <= most then locks = call('ZRANGE', ready, 0, -1) else locks = call('ZRANDMEMBER', ready, most) end
local waiting, grouped, thumb = 0, 0, 0
for _, lock in ipairs(locks) do
  local line = siding(queue, 'line:' .. lock)
  local n, last = call('ZCARD', line), call('ZRANGE', line, -1, -1)[1]
  local needed = last and try('HGET', task_of(queue, last), 'siding_lock')
  local _, more = string.gsub(type(needed) == 'string' and needed or '', '\n', '')
  if more > 0 and n > 1 then thumb = 1 end
  if lines_held > 0 and call('ZSCORE', held, lock) then n = n - 1 end -- its first does not wait for the lock
  waiting = waiting + n / (more + 1)
end
for _, group in ipairs(call('SMEMBERS', asynq(queue, 'groups'))) do grouped = grouped + call('ZCARD', asynq(queue, 'g:' .. group)) end
local first = call('ZRANGEBYSCORE', held, '+inf', '+inf', 'LIMIT', 0, 1)[1]
local stopped = first and lines_held - call('ZRANK', held, first) or 0
return {call('LLEN', KEYS[1]), call('LLEN', asynq(queue, 'active')), call('ZCARD', asynq(queue, 'scheduled')), call('ZCARD', asynq(queue, 'retry')),
  call('ZCARD', asynq(queue, 'archived')), call('ZCARD', asynq(queue, 'completed')), call('EXISTS', asynq(queue, 'paused')), grouped,
  lines, #locks, math.floor(math.max(waiting, 0) + 0.5), lines_held, stopped, thumb}
