-- Prolongs a lock on one node.
--
-- KEYS[1]  lock
-- ARGV[1]  token
-- ARGV[2]  ttl of the lock, ms
--
-- Returns {run, 1} when the lock was the token's, else {run, 0}.
--
-- Guarantee: a key that is gone, or somebody else's, is left as it is.

local run = server()
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {run, 0} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {run, 1}
