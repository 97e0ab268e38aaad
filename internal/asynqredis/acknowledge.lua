-- Put in front of asynq's own scripts that acknowledge an attempt.
--
-- ARGV[#ARGV - 1]  the attempt's name
-- ARGV[#ARGV]      which of the KEYS is the task's
--
-- Returns 'over' when the attempt is not the task's latest, or no longer
-- active; else what asynq's script returns.
--
-- Guarantee: an acknowledgement ends the attempt that it is of, and no other;
-- the same one made twice (its reply was lost) has the effect of one.

do
  local task = redis.call('HMGET', KEYS[tonumber(ARGV[#ARGV])], 'siding_attempt', 'state')
  if task[1] ~= ARGV[#ARGV - 1] or task[2] ~= 'active' then return 'over' end
end
