-- Writes down that the handler of a task without retries is about to begin: if its server dies from then on, the task does not
-- run again.
--
-- KEYS[1]  task
-- ARGV[1]  attempt
--
-- Returns 1, or 0 if the attempt is not the task's latest, which changes nothing.
--
-- Guarantee: the mark is of one attempt alone.

if redis.call('HGET', KEYS[1], 'siding_attempt') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'siding_began') -- a write that takes no memory: then Redis does not refuse the next one for want of it
redis.call('HSET', KEYS[1], 'siding_began', ARGV[1])
return 1
