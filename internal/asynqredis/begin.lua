-- Writes down that the handler of an attempt is about to begin, or that it did
-- not begin after all.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- ARGV[1]  the attempt's name
-- ARGV[2]  '1' when it begins, '0' when it did not
--
-- Returns 1 when the attempt is still the task's latest, else 0.
--
-- Guarantees: a task that is gone is not created anew; the mark of another
-- attempt is left as it is.

local task = redis.call('HMGET', KEYS[1], 'siding_attempt', 'state')
if task[1] ~= ARGV[1] or task[2] ~= 'active' then return 0 end
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[1], 'siding_begun', ARGV[1])
else
  redis.call('HDEL', KEYS[1], 'siding_begun')
end
return 1
