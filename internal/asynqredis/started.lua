-- Marks that the handler of an attempt is about to start, or removes the mark of a handler that
-- did not start.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- ARGV[1]  the attempt's name
-- ARGV[2]  '1' to mark, '0' to remove the mark
--
-- Returns 1 when the attempt is still the task's latest, else 0.
--
-- Guarantees: no task that is gone comes back. The mark of another attempt stays as it is.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'state')
if task[1] ~= ARGV[1] or task[2] ~= 'active' then return 0 end
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[1], 'siding_started', ARGV[1])
else
  redis.call('HDEL', KEYS[1], 'siding_started')
end
return 1
