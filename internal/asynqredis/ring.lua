-- Put behind one of asynq's scripts that may put tasks into pending. That script is
-- the function asynq, and bell.lua comes before it.
--
-- KEYS[#KEYS - 1]  asynq:{queue}:pending
-- KEYS[#KEYS]      siding:{queue}:bell
--
-- Returns what asynq's script returns.
--
-- Guarantees: asynq's script has the effect that it has alone; the bell rings once for each
-- task that it has put there, and else not.

local function pending()
  local length = redis.pcall('LLEN', KEYS[#KEYS - 1])
  return type(length) == 'number' and length or 0
end

local before = pending()
local answer = asynq()
ring(KEYS[#KEYS], pending() - before)
return answer
