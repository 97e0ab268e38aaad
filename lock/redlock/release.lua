-- Releases a lock on one node.
--
-- KEYS[1]  lock
-- ARGV[1]  token
--
-- Returns {run, 1} when the lock was the token's, else {run, 0}.
--
-- Guarantee: somebody else's lock is left as it is.

local run = server()
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {run, 0} end
redis.call('DEL', KEYS[1])
return {run, 1}
