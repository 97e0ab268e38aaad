-- Renews the leases of attempts, and their locks.
--
-- KEYS[1]  record of what the server's last step came to, which lives as long as its attempts
-- KEYS[2]  that of its other lane
-- ARGV[1]  ttl of the locks, ms
-- ARGV[2]  how long the fencing tokens are remembered from now on, ms
-- ARGV[3...]  queue, id, name and lock of each attempt
--
-- Returns for each attempt 1 if it is its task's latest and holds its lock, else 0.
--
-- Guarantee: a lock or a lease that is not the attempt's, a lock that an operator has revoked, and a task that is no longer
-- at work, stay as they are. So a second call does what one does.

local given = {ttl = ARGV[1], fence_ttl = ARGV[2]}
local attempts = {unpack(ARGV, 3)}

-- include beside
-- include common
-- include Permits
-- include locks
-- include attempt

call('PEXPIRE', KEYS[1], RECORD_KEPT)
call('PEXPIRE', KEYS[2], RECORD_KEPT)
local kept = {}
for i = 1, #attempts, 4 do
  local ok, result = pcall(renew, attempts[i], attempts[i + 1], attempts[i + 2], attempts[i + 3])
  if not ok then
    local text = text_of(result)
    if not string.find(text, 'WRONGTYPE', 1, true) then return redis.error_reply(text) end
    result = false
  end
  kept[#kept + 1] = result and 1 or 0
end
return kept
