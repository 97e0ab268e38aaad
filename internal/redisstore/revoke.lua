-- Takes a lock, or a permit of a lock, from its holder, as an operator wants it. KEYS are those of
-- queue.lua, and
--
-- KEYS[5]  record of the last revocation: hash of calls (the names of the last ten calls, the latest
--          first), at (us), by, reason, holder, fence of the lease; '0' for another program's lock
--
-- ARGV[1]  name of this call
-- ARGV[2]  fence of the lease that is revoked; '0' for whoever holds the lock, be it another program
-- ARGV[3]  who revokes it
-- ARGV[4]  why
-- ARGV[5]  retention of the record, ms
-- ARGV[6]  '1' in a Cluster
-- ARGV[7]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[8]  hand-off timeout of a reservation, ms
-- ARGV[9]  retention of the mark of a reservation, ms
--
-- Returns {outcome, the holder's name, ms until the lock is free at the latest}. The outcome is
-- 'revoked'; 'free' when nobody holds the lock, or its holders have permits; 'other' when another lease or program holds the
-- lock, which stays as it is.
--
-- Guarantees: no other holder is granted the lock while the revoked one may trust its lease. The
-- token of the lock changes, so the holder cannot renew it. The lock is handed off when the holder
-- releases it, or when its TTL is over. A lock of another program is handed off at once, as its
-- holder cannot be told; so is a lock without a TTL. The same call made twice (its reply was lost)
-- has the effect of one, and returns the same outcome, unless ten others came between.

-- (take.lua)
-- (join.lua)
-- (queue.lua)
local record = KEYS[5]
local value, left = redis.call('GET', lock), redis.call('PTTL', lock)
local rest = string.match(value or '', '^siding:(.*)$')
local revoked = rest and begins(rest, 'revoked-')
local calls = redis.call('HGET', record, 'calls') or ''
if string.find(calls, ARGV[1], 1, true) then
  return {'revoked', redis.call('HGET', record, 'holder'), revoked and math.max(0, left) or 0}
end
if not value or reserved(value) or value == MARK then return {'free', '', 0} end
local holder = rest and string.match(rest, '^[^:]*:(.*)$') or FOREIGN
local last = base and redis.call('HGET', '{' .. base .. '}:permits', string.match(lock, '%d+$'))
  or string.match(redis.call('GET', grant) or '0', '^%d+') or '0'
if ARGV[2] ~= '0' and (not rest or ARGV[2] ~= last) then return {'other', holder, 0} end

if not rest or left < 0 then
  hand_off(false, ARGV[6] == '1', ARGV[7], ARGV[8], ARGV[9])
  left = 0
elseif not revoked then
  redis.call('SET', lock, 'siding:revoked-' .. rest, 'KEEPTTL')
end
calls = string.sub(ARGV[1] .. ' ' .. calls, 1, 10 * (#ARGV[1] + 1))
redis.call('HSET', record, 'calls', calls, 'at', digits(us()), 'by', ARGV[3], 'reason', ARGV[4], 'holder', holder,
  'fence', rest and last or '0')
redis.call('PEXPIRE', record, ARGV[5])
return {'revoked', holder, left}
