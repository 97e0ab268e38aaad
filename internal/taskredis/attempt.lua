-- Attempts that are at work.
--
-- Comes after locks.lua.

-- Renews the lease of an attempt, and its lock. Returns whether it is its task's latest and holds the lock that it knows of, ''
-- for none.
local function renew(queue, id, name, lock)
  local have = call('HMGET', task_of(queue, id), 'siding_attempt', 'state', 'siding_lock')
  if have[1] ~= name or have[2] ~= 'active' then return false end
  -- One that has asked for a lock may not know yet that it has it. And one without a lock may have a place in a line.
  local holder = holder_of(name)
  local key, revoked = held_by(have[3] or lock, holder)
  if revoked or (lock ~= '' or holder ~= name) and not key or key and not renew_lock(key) then return false end
  local lease = asynq(queue, 'lease')
  -- If it was granted the lock, and has lost it before it heard of that, its lease is over: others wait for it to be put back.
  if not key and (have[3] or '') ~= '' and tonumber(call('ZSCORE', lease, id) or 0) * 1000000 <= now then return false end
  call('ZADD', lease, key and leased(given.ttl, given.ttl / 2) or in_seconds(PLAIN_LEASE), id)
  return true
end

return renew
