-- Put before asynq's own scripts that acknowledge an attempt.
--
-- ARGV[#ARGV - 1]  the attempt's name
-- ARGV[#ARGV]      the number of the task's key in KEYS
--
-- Returns 'over' when the attempt is not the task's latest, or no longer
-- active; else what asynq's script returns.
--
-- Guarantees: an acknowledgement ends only its own attempt. The same one made twice
-- (its reply was lost) has the effect of one.

do
  local task = redis.call('HMGET', KEYS[tonumber(ARGV[#ARGV])], 'siding_attempt', 'state')
  if task[1] ~= ARGV[#ARGV - 1] or task[2] ~= 'active' then return 'over' end
end
