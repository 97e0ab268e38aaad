-- Prolongs a held lock.
--
-- KEYS[1]  key        of the lock, or of its permit
-- ARGV[1]  token
-- ARGV[2]  ttl        of the lock, ms
-- ARGV[3]  fence_ttl  how long the fencing token is remembered, ms
--
-- Returns 1 when the lock was the token's, else 0.
--
-- Guarantees: a key that is gone, or somebody else's, is left as it is. A permit is lost if the key of its lock was deleted,
-- or is another program's.

local key, token, ttl, fence_ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

-- include common
-- include locks

call('GET', key) -- an error if another program has put another type there
local held, revoked = held_by(key, token)
return held and not revoked and renew_lock(held) and 1 or 0
