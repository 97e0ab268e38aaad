-- Says which queues have pending tasks, and wakes an idle server of each. Plain clients of asynq tell nobody.
--
-- KEYS[1]  and those that follow: the lists of pending tasks of the queues
-- ARGV[1...]  the queues
--
-- Returns for each 'empty', 'paused', 'woken', or 'busy' if it has no idle server.
--
-- Guarantee: an idle server of a queue with pending tasks is woken, unless the queue is paused.

local lists, queues = {KEYS[1], unpack(KEYS, 2)}, {unpack(ARGV, 1)}

-- include beside
-- include common
-- include notify
-- include upkeep

local answers = {}
for i, queue in ipairs(queues) do
  answers[i] = call('EXISTS', lists[i]) == 0 and 'empty' or wake(queue)
end
return answers
