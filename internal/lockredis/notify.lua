-- Wakes an idle server of a queue, as there is something to take.
--
--   list  siding:{<queue>}:notify
--   most  how many tasks there are to take, as far as the caller knows
--
-- Idle servers wait at the list, and an element wakes one of them. While servers wait the list is empty. While none does,
-- elements stay for servers that become idle later, and each would be woken for nothing. So there are never more than
-- such tasks, and never more than 100. The list of a queue that nobody serves any more goes away after an hour.
--
-- An error of the list must not fail the script, as the task is pending already: a server finds it within a second.
local function notify(list, most)
  local length = redis.pcall('LLEN', list)
  if type(length) ~= 'number' or length >= math.min(most, 100) then return end
  redis.pcall('LPUSH', list, '1')
  if length == 0 then redis.pcall('EXPIRE', list, 3600) end
end

return notify
