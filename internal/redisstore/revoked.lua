-- Reads who has revoked a lease.
--
-- KEYS[1]  record of the last revocation of the lock, see revoke.lua
-- ARGV[1]  fence of the lease
--
-- Returns {who, why}; or {'', ''} if the lease was not revoked.

local record = redis.call('HMGET', KEYS[1], 'fence', 'by', 'reason')
if record[1] ~= ARGV[1] then return {'', ''} end
return {record[2], record[3]}
