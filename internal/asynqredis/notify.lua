-- Notifies idle workers of new tasks. This text comes before the scripts that put tasks into
-- pending.
--
-- Idle workers wait on a queue's notify list. Each element wakes one of them. The list stays short
-- while nobody waits. A dequeue that finds the queue empty clears the list. The list of a queue
-- without a server expires after an hour.

-- Notifies so many times. An error must not fail the script, as the tasks are in pending already.
local function notify(list, times)
  local length = redis.pcall('LLEN', list)
  if type(length) ~= 'number' then return end
  for _ = 1, math.min(times, 100 - length) do redis.pcall('RPUSH', list, '1') end
  if length == 0 and times > 0 then redis.pcall('EXPIRE', list, 3600) end
end

