-- Takes a waiter out of the wait queue because it was woken.
--
-- KEYS[1]  lock
-- KEYS[2]  queue
-- ARGV[1]  waiter
-- ARGV[2]  the reservation under which it was woken
--
-- Returns 1 when it was taken out, else 0.
--
-- Guarantee: a waiter keeps its position if its reservation no longer stands. So a wake-up
-- that comes too late costs the waiter nothing.

if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[2], ARGV[1])
