-- Lists the held lines of a queue.
--
-- KEYS[1]  held of the queue
-- ARGV[1]  queue
-- ARGV[2]  lock  whose line to look at; '' for all
-- ARGV[3]  most  how many lines are listed at most: those that have stopped, then those that go on first
--
-- Returns {lines}, and five values for each: lock, until when it is held in us or 'stop', id and message of the task that holds
-- it, and how many wait behind that.
--
-- Guarantee: it changes nothing. A line whose task is not there any more, or holds it no more, is not listed.

-- include beside
-- include common

local queue, one, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local all, locks = call('ZCARD', KEYS[1]), {one}
if one == '' then
  locks = call('ZRANGEBYSCORE', KEYS[1], '+inf', '+inf', 'LIMIT', 0, most)
  local others = math.min(most, all) - #locks -- the set has the stopped ones behind them
  if others > 0 then
    for _, lock in ipairs(call('ZRANGE', KEYS[1], 0, others - 1)) do locks[#locks + 1] = lock end
  end
end
local answer = {all}
for _, lock in ipairs(locks) do
  local line = siding(queue, 'line:' .. lock)
  local id = call('ZRANGE', line, 0, 0)[1]
  local have = id and call('HMGET', task_of(queue, id), 'siding_held', 'siding_lock', 'state', 'msg')
  if have and have[1] and needs(have[2] or '', lock) and (have[3] == 'retry' or have[3] == 'pending' or have[1] == 'stop' and have[3] == 'archived') then
    for _, value in ipairs({lock, have[1], id, have[4] or '', call('ZCARD', line) - 1}) do answer[#answer + 1] = value end
  end
end
return answer
