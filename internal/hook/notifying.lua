-- Put behind one of asynq's scripts that may put tasks into pending. That script is
-- the function asynq, and notify.lua comes before it.
--
-- KEYS[#KEYS - 1]  asynq:{queue}:pending
-- KEYS[#KEYS]      siding:{queue}:notify
--
-- Returns what asynq's script returns.
--
-- Guarantees: asynq's script has the effect that it has alone. The queue is notified once for each
-- task that the script has put into pending, and not otherwise.

local function pending()
  local length = redis.pcall('LLEN', KEYS[#KEYS - 1])
  return type(length) == 'number' and length or 0
end

local before = pending()
local answer = asynq()
notify(KEYS[#KEYS], pending() - before)
return answer
