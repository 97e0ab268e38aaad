-- Releases a lock on one node.
--
-- KEYS[1]  lock
-- KEYS[2]  what was released last: its token, for the rest of its ttl
-- ARGV[1]  token
--
-- Returns {run, 1} when the lock was the token's, or was released last by it, else {run, 0}.
--
-- Guarantees: somebody else's lock is left as it is; the same call made twice (its reply was
-- lost) says the same until somebody else has released the lock.

local run = server()
if redis.call('GET', KEYS[1]) == ARGV[1] then
  local left = redis.call('PTTL', KEYS[1])
  redis.call('DEL', KEYS[1])
  if left > 0 then redis.call('SET', KEYS[2], ARGV[1], 'PX', left) end
  return {run, 1}
end
return {run, redis.call('GET', KEYS[2]) == ARGV[1] and 1 or 0}
