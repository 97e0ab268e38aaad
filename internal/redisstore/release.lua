-- Releases a lock: reserves it for the first in the wait queue who can come, or deletes it
-- when there is none. Or it reserves the lock for a waiter that is not queued and comes by
-- itself. The common case comes before queue.lua, and so does not pay for it. KEYS are those
-- of queue.lua, and
--
-- KEYS[5]  what this release has recorded, unless it only deleted a lock without a wait queue: the first
--          value of its answer; and behind 3 the fence, the ticket and the name of the waiter; for 10 s
--
-- ARGV[1]  token    the holder's
-- ARGV[2]  '1' when the client wakes waiters
-- ARGV[3]  '1' in a Cluster
-- ARGV[4]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[5]  hand-off timeout of a reservation, ms
-- ARGV[6]  retention of the mark of a reservation, ms
-- ARGV[7]  the waiter that is not queued, or ''
-- ARGV[8]  the token's fence, '0' if that is not known
-- ARGV[9]  rule of the lock, see permits.lua; or ''
-- ARGV[10] and those that follow, if any: start, see queue.lua
--
-- Returns {0} when the lock was lost. If it was revoked, that may be {0, ms}, with the time after which the
-- client has to sweep the lock, or {0, reservation, waiter, ticket, lock} for a waiter that the client has
-- to wake. Returns {1} when it was released and the client has to wake nobody, {1, ms} likewise, and the
-- client has to sweep the lock after that time, {2, reservation, waiter, ticket, lock} when the client has
-- to wake that waiter, {3, token, fence, ...} when a waiter has started.
--
-- Guarantees: another token's lock and its wait queue stay as they are. A reservation expires. The
-- same call made twice (its reply was lost) is no loss, if there was a wait queue, or if nobody
-- else was granted the lock: the last fence is still the token's. The second call names the same
-- reservation, if that stands, or the same waiter that has started, if that is still active.
-- The second call reserves the lock for nobody. If others wait for a lock with a rule, the second call
-- too says when the client has to sweep it. A revoked lease is lost to both calls.

local value = redis.call('GET', KEYS[1])
local ours = value == ARGV[1]
if ours and ARGV[7] == '' and string.byte(KEYS[1]) ~= 123 and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return {1}
end

-- (take.lua)
-- (join.lua)
-- (queue.lua)
rule = rule_of(ARGV[9])
if not base and value == MARK then -- the token's permit is not known: it was given one since, or an answer was lost
  with_permits()
  for number, held in pairs(permits_of(lock)) do
    ours = held == ARGV[1]
    if ours or begins(held, ARGV[4]) or held == 'siding:revoked-' .. string.sub(ARGV[1], #'siding:' + 1) then
      base, value = lock, held
      lock = permit_key(base, number) -- apart: the Lua of miniredis assigns lock before it reads lock for base
      break
    end
  end
end
-- An operator has revoked the lease, see revoke.lua. Its holder has returned.
local revoked = value == 'siding:revoked-' .. string.sub(ARGV[1], #'siding:' + 1)
if ours or revoked then
  local next, record = {1}, nil
  if revoked then
    next = hand_off(ARGV[2] == '1', ARGV[3] == '1', ARGV[4], ARGV[5], ARGV[6])
    next[1] = 0
  elseif ARGV[7] ~= '' then
    reserve_for(ARGV[4] .. digits(us()) .. ':' .. ARGV[7], ARGV[5], ARGV[6])
  else
    next, record = hand_off(ARGV[2] == '1', ARGV[3] == '1', ARGV[4], ARGV[5], ARGV[6], ARGV[10] and {unpack(ARGV, 10)})
  end
  redis.call('SET', KEYS[5], record or next[1], 'PX', '10000')
  return next
end
local record = redis.call('GET', KEYS[5])
local lost = record == '0'
if value and begins(value, ARGV[4]) then
  local again = handed_off(value, ARGV[2] == '1', ARGV[3] == '1')
  if lost then again[1] = 0 end
  return again
end
local fence, ticket, waiter = string.match(record or '', '^3 (%d+) (%d+) (.*)$')
if fence and ARGV[10] then
  local outcome, started = wake_waiter(waiter, ticket, {unpack(ARGV, 10)}, true)
  if outcome == 'started' then return {3, 'siding:' .. ARGV[10] .. ':' .. table.remove(started, 1), fence, unpack(started)} end
end
if record then return {lost and 0 or 1, rule and next_sweep(base or lock, rule)} end
if (not value or reserved(value)) and string.match(redis.call('GET', grant) or '', '^%d+') == ARGV[8] then return {1} end
return {0}
