-- Writes down that the handler of a task without retries is about to begin: if its server dies from then on, the task does not
-- run again. Or that a task which has its lock has waited for it too long: then it does not run at all, whoever takes it next.
--
-- KEYS[1]  task
-- ARGV[1]  attempt
-- ARGV[2]  1 if it has waited for too long
--
-- Returns 1, or 0 if the attempt is not the task's latest, which changes nothing.
--
-- Guarantee: the mark is of one attempt alone. The end of the wait stays until the task runs or ends.

if redis.call('HGET', KEYS[1], 'siding_attempt') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'siding_began') -- a write that takes no memory: then Redis does not refuse the next one for want of it
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[1], 'siding_wait_ends', redis.call('TIME')[1])
else
  redis.call('HSET', KEYS[1], 'siding_began', ARGV[1])
end
return 1
