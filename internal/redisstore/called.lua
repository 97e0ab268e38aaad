-- Takes a waiter out of the line because it was called.
--
-- KEYS[1]  lock
-- KEYS[2]  line
-- ARGV[1]  waiter
-- ARGV[2]  the reservation under which it was called
--
-- Returns 1 when it was taken out, else 0.
--
-- Guarantee: a waiter whose reservation no longer stands keeps its place, so
-- that a call which came too late costs it nothing.

if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[2], ARGV[1])
