-- Prolongs a held permit.
--
-- KEYS[1]  permit; or the lock, if the token may hold any permit of it
-- KEYS[2]  grant    the last fencing token of its lock
-- KEYS[3]  lock     see permits.lua
-- KEYS[4]  permits  the hash of the permits of the lock
-- ARGV[1]  token
-- ARGV[2]  ttl of the permit, ms
-- ARGV[3]  retention of the fencing token, ms
--
-- Returns 1 when the permit was the token's, else 0.
--
-- Guarantees: a key that is gone, or somebody else's, is left as it is. A permit is lost if the key
-- of its lock was deleted, or is another program's.

local permit = KEYS[1]
if permit == KEYS[3] then
  with_permits()
  for number, value in pairs(permits_of(KEYS[3])) do
    if value == ARGV[1] then permit = permit_key(KEYS[3], number) end
  end
end
if redis.call('GET', permit) ~= ARGV[1] or redis.call('GET', KEYS[3]) ~= MARK then return 0 end
redis.call('PEXPIRE', permit, ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[3], ARGV[2]) end
redis.call('PEXPIRE', KEYS[4], PERMITS_KEPT)
return 1
