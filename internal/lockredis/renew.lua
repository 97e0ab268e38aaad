-- Prolongs a held lock.
--
-- given has:
--   token
--   ttl        of the lock, ms
--   fence_ttl  how long the fencing token is remembered, ms
--
-- Returns 1 when the lock, or the permit, was the token's, else 0.
--
-- Guarantee: a key that is gone, or somebody else's, is left as it is. A permit is lost if the key of its lock was deleted,
-- or is another program's.
--
-- Comes after locks.lua.
local function renew(key)
  local value = call('GET', key) -- an error if another program has put another type there
  local held, revoked = held_by(key, given.token, value)
  return held and not revoked and renew_lock(held) and 1 or 0
end

return renew
