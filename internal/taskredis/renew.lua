-- Renews the leases of attempts, and their locks.
--
-- KEYS[1...]  records of what the server's last steps came to, one for each lane; they live as long as its attempts
-- ARGV[1]  ttl of the locks, ms
-- ARGV[2]  how long the fencing tokens are remembered from now on, ms
-- ARGV[3...]  queue, id, name and lock of each attempt
--
-- Returns for each attempt 1 if it is its task's latest and holds its lock, else 0.
--
-- Guarantee: a lock or a lease that is not the attempt's, a lock that an operator has revoked, and a task that is no longer
-- at work, stay as they are. So a second call does what one does.

local ttl, fence_ttl = ARGV[1], ARGV[2]
local attempts = {unpack(ARGV, 3)}

-- include common
-- include locks

local function renew(queue, id, name, lock)
  local have = call('HMGET', asynq(queue, 't:' .. id), 'siding_attempt', 'state', 'siding_lock')
  if have[1] ~= name or have[2] ~= 'active' then return 0 end
  lock = have[3] or lock -- the attempt may have asked for another one, and not know yet that it has it
  if lock ~= '' then
    local key, revoked = held_by(lock, name)
    if not key or revoked or not renew_lock(key) then return 0 end
  end
  call('ZADD', asynq(queue, 'lease'), in_seconds(lock ~= '' and ttl or PLAIN_LEASE), id)
  return 1
end

for i = 1, #KEYS do call('PEXPIRE', KEYS[i], RECORD_KEPT) end
local kept = {}
for i = 1, #attempts, 4 do
  local ok, result = pcall(renew, attempts[i], attempts[i + 1], attempts[i + 2], attempts[i + 3])
  if not ok then
    local text = type(result) == 'table' and result.err or tostring(result)
    if not string.find(text, 'WRONGTYPE', 1, true) then return redis.error_reply(text) end
    result = 0
  end
  kept[#kept + 1] = result
end
return kept
