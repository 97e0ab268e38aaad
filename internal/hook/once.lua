-- Put behind one of asynq's scripts that store a task. That script is the function asynq.
--
-- ARGV[#ARGV - 1]  the call's name
-- ARGV[#ARGV]      the number of the task's key in KEYS
--
-- Returns what asynq's script returns: 1 when it has stored the task, 0 when there is another of
-- its id, -1 when there is another like it.
--
-- Guarantee: the same call made twice (its answer was lost) returns 1 twice, as long as the task
-- is there.

local task, name = KEYS[tonumber(ARGV[#ARGV])], ARGV[#ARGV - 1]
local answer = asynq()
if answer == 1 then
  redis.call('HSET', task, 'siding_enqueue', name)
elseif redis.call('HGET', task, 'siding_enqueue') == name then
  answer = 1
end
return answer
