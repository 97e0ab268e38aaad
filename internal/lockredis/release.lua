-- Releases a lock, and gives it to whoever came first.
--
-- given has:
--   token      the holder's
--   fence      the holder's, 0 if it is not known
--   rule       '' for one holder at a time; see parse_rule
--   by         who releases it: unique per release
--   handoff    for how long the lock is reserved for a waiter, ms
--   fence_ttl  how long the mark of a reservation is remembered, ms
--
-- Returns 1 when the lock, or the permit, was released, 0 when it was lost. A revoked lock is released, and lost.
--
-- Guarantees: another token's lock stays as it is. The same call made twice is no loss, if somebody waited, if it is that
-- of a permit, or if nobody else was granted the lock: the last fence is still the token's. A revoked lease is lost to both calls.
--
-- Comes after lines.lua.
local function release(key)
  local lock = lock_of(key)
  rules[lock] = given.rule ~= '' and Permits().parse_rule(given.rule)
  local record = beside(lock, 'released:' .. given.by)
  local value = call('GET', key) -- an error if another program has put another type there
  local held, revoked = held_by(key, given.token, value)
  if held then
    local waiting = waiting_for(lock)
    free(held, given.by, nil, waiting) -- first, as it begins with what needs no memory: then a full Redis refuses nothing
    if revoked or waiting > 0 or held ~= lock then call('SET', record, revoked and '0' or '1', 'PX', 10000) end
    return revoked and 0 or 1
  end
  local released = call('GET', record)
  if released then return tonumber(released) end
  return (not value or reserved(value)) and digits(last_fence(lock)) == given.fence and 1 or 0
end

return release
