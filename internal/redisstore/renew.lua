-- Prolongs a held lock.
--
-- KEYS[1]  lock
-- KEYS[2]  grant    the last fencing token
-- ARGV[1]  token
-- ARGV[2]  ttl of the lock, ms
-- ARGV[3]  retention of the fencing token, ms
--
-- Returns 1 when the lock was the token's, else 0.
--
-- Returns -1 when the lock has permits by now, see permits.lua: the token may hold one of them.
--
-- Guarantee: a key that is gone, or somebody else's, is left as it is.

local value = redis.call('GET', KEYS[1])
if value == 'siding-limited' then return -1 end
if value ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
