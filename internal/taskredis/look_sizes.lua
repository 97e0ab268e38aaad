-- Counts the tasks of a queue.
--
-- KEYS[1]  pending of the queue
-- ARGV[1]  queue
-- ARGV[2]  lines  how many of its lines are counted at most
--
-- Returns {pending, active, scheduled, retry, archived, completed, 1 if the queue is paused, tasks in groups, lines, how many
-- of these were counted, tasks in these, held lines, those of them that have stopped}.
--
-- Guarantee: it changes nothing.

-- include beside
-- include common

local queue, most = ARGV[1], tonumber(ARGV[2])
local ready = siding(queue, 'ready')
local lines, locks = call('ZCARD', ready), nil
if lines <= most then locks = call('ZRANGE', ready, 0, -1) else locks = call('ZRANDMEMBER', ready, most) end
local waiting, grouped = 0, 0
for _, lock in ipairs(locks) do waiting = waiting + call('ZCARD', siding(queue, 'line:' .. lock)) end
for _, group in ipairs(call('SMEMBERS', asynq(queue, 'groups'))) do grouped = grouped + call('ZCARD', asynq(queue, 'g:' .. group)) end
local held = siding(queue, 'held')
local lines_held, first = call('ZCARD', held), call('ZRANGEBYSCORE', held, '+inf', '+inf', 'LIMIT', 0, 1)[1]
local stopped = first and lines_held - call('ZRANK', held, first) or 0
return {call('LLEN', KEYS[1]), call('LLEN', asynq(queue, 'active')), call('ZCARD', asynq(queue, 'scheduled')), call('ZCARD', asynq(queue, 'retry')),
  call('ZCARD', asynq(queue, 'archived')), call('ZCARD', asynq(queue, 'completed')), call('EXISTS', asynq(queue, 'paused')), grouped,
  lines, #locks, waiting, lines_held, stopped}
