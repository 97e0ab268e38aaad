-- Takes the next task of the first of several queues that has one, on a single Redis. The function
-- dequeue(KEYS, ARGV) comes before this script: dequeue.lua with all its parts.
--
-- ARGV[1]  how many queues; then for each, in the order in which they are asked, its name, and the
--          prefix of the names of its waiters
-- then     when the attempt's lease ends, Unix seconds; its name; and ARGV[5] of dequeue.lua and what
--          follows there
--
-- Returns {the number of the queue, what dequeue.lua returns of it}; nil if each queue is empty or
-- paused.
--
-- Guarantees: those of dequeue.lua. Queues behind the one that the answer names were not asked.

local queues = tonumber(ARGV[1])
local rest = 2 + 2 * queues
local found, empty = nil, {}
for i = 1, queues do
  local asynq, siding = 'asynq:{' .. ARGV[2 * i] .. '}:', 'siding:{' .. ARGV[2 * i] .. '}:'
  if redis.call('EXISTS', asynq .. 'pending') == 0 then
    empty[#empty + 1] = siding .. 'notify'
  else
    local got = dequeue({asynq .. 'pending', asynq .. 'paused', asynq .. 'active', asynq .. 'lease', siding .. 'notify',
      asynq .. 'retry', siding .. 'contended'}, {ARGV[rest], asynq .. 't:', ARGV[rest + 1], ARGV[2 * i + 1], unpack(ARGV, rest + 2)})
    if got then
      found = {i, got}
      break
    end
  end
end
if #empty > 0 then redis.call('DEL', unpack(empty)) end
return found
