-- Asks one node for its vote: to take the lock there.
--
-- KEYS[1]  lock
-- ARGV[1]  token
-- ARGV[2]  ttl of the lock, ms
-- ARGV[3]  for how long the server has to have run, s
--
-- Returns {run, 1} when the lock is the token's now, {run, 0, its value, ms left} when the lock is
-- another's, {run, -1, s} when the server has run for only s seconds.
--
-- Guarantees: somebody else's lock is left as it is; the same call made twice (its reply was
-- lost) says the same; a server that has started lately is not changed.

local run, up = server()
if up < tonumber(ARGV[3]) then return {run, -1, up} end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {run, 1} end
local value = redis.call('GET', KEYS[1])
if value ~= ARGV[1] then return {run, 0, value, redis.call('PTTL', KEYS[1])} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {run, 1}
