-- Writes down what is about to begin, so that it still counts if the server dies: the handler of a task without retries, which
-- then does not run again; or what the user does with a task that got its lock too late, whose handler then never runs.
--
-- KEYS[1]  task
-- ARGV[1]  attempt
-- ARGV[2]  1 if the task got its lock too late
--
-- Returns 1, or 0 if the attempt is not the task's latest, which changes nothing.
--
-- Guarantee: the mark that a handler has begun is of one attempt alone. That of a task that is too late stays with the task.

if redis.call('HGET', KEYS[1], 'siding_attempt') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'siding_began') -- a write that takes no memory: then Redis does not refuse the next one for want of it
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[1], 'siding_wait_ends', redis.call('TIME')[1])
else
  redis.call('HSET', KEYS[1], 'siding_began', ARGV[1])
end
return 1
