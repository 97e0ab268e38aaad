-- What the scripts that put tasks into pending have in common; it is put in front
-- of each of them.
--
-- A queue's bell is a list. Idle workers wait on it, and each element that it gets
-- wakes one of them. Where nobody waits it stays short; a dequeue that finds the
-- queue empty clears it, and that of a queue which no server has ends after an hour.

-- It does not fail: what it announces has been done.
local function ring(bell, times)
  local length = redis.pcall('LLEN', bell)
  if type(length) ~= 'number' then return end
  for _ = 1, math.min(times, 100 - length) do redis.pcall('RPUSH', bell, '1') end
  if length == 0 and times > 0 then redis.pcall('EXPIRE', bell, 3600) end
end

