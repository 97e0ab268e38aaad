-- Takes a lock, or a permit of a lock, from its holder, as an operator wants it.
--
-- KEYS[1]  key        of the lock, or of the permit
-- ARGV[1]  by         the name of this call
-- ARGV[2]  fence      of the lease that is revoked; 0 for whoever holds the lock, be it another program
-- ARGV[3]  operator   who revokes it
-- ARGV[4]  reason
-- ARGV[5]  kept       for how long the record of it is kept, ms
-- ARGV[6]  handoff    for how long a lock is reserved for a waiter, ms
-- ARGV[7]  fence_ttl  how long the mark of a reservation is remembered, ms
-- ARGV[8]  cluster    1 in a Cluster
-- ARGV[9]  foreign    how another program is called
--
-- Returns {outcome, the holder's name, ms until the lock is free at the latest, who}. The outcome is 'revoked'; 'free' when nobody
-- holds the lock, or its holders have permits; 'other' when another lease or program holds the lock, which stays as it is;
-- 'before' when another call has revoked it, and its holder has not returned yet: then who did it comes last, '' if that is
-- not known. The record stays that of the first.
--
-- The hash {<lock>}:revoked is the record of the last revocation: calls (the names of the last ten calls, the latest
-- first, each followed by a blank, or a plus if it came after another), at (us), by, reason, holder, fence of the lease; 0 for another program's lock.
--
-- Guarantees: no other holder is granted the lock while the revoked one may trust its lease. The token of the lock changes,
-- so the holder cannot renew it. The lock goes to the next when the holder releases it, or when its TTL is over. A lock of
-- another program is freed at once, as its holder cannot be told; so is a lock without a TTL. The same call made twice has
-- the effect of one, and returns the same outcome, unless ten others came between.

local key, by, fence, cluster = KEYS[1], ARGV[1], ARGV[2], ARGV[8] == '1'
local given = {handoff = ARGV[6], fence_ttl = ARGV[7]}
local limits, overrides, slots = '', '', 'siding:slots'

-- include beside
-- include common
-- include Permits
-- include locks
-- include Queue
-- include Lines
-- include free
-- include notify

local lock = lock_of(key)
local record = beside(lock, 'revoked')
local value, left = value_of(key), call('PTTL', key)
local rest = type(value) == 'string' and string.match(value, '^siding:(.*)$')
local revoked = rest and has_prefix(rest, 'revoked-')
local calls = call('HGET', record, 'calls') or ''
local who = ''
if revoked or calls ~= '' then who = call('HGET', record, 'by') or '' end
local _, seen = string.find(calls, by, 1, true)
if seen then
  local outcome = string.sub(calls, seen + 1, seen + 1) == '+' and 'before' or 'revoked'
  return {outcome, call('HGET', record, 'holder'), revoked and math.max(0, left) or 0, who}
end
local function note(mark) return string.sub(by .. mark .. calls, 1, 10 * (#by + 1)) end
if not value or reserved(value) or value == LIMITED then return {'free', '', 0, ''} end
local holder = rest and string.match(rest, '^[^:]*:(.*)$') or ARGV[9]
local last = key ~= lock and call('HGET', Permits().permits_of(lock), Permits().number_of(key)) or digits(last_fence(lock))
if fence ~= '0' and (not rest or fence ~= last) then return {'other', holder, 0, ''} end

if not rest or left < 0 then
  free(key, by)
  left = 0
elseif revoked then
  if call('HGET', record, 'fence') ~= last then who = '' end -- it is of another permit, or lost
  call('HSET', record, 'calls', note('+'))
  return {'before', holder, left, who}
else
  call('SET', key, 'siding:revoked-' .. rest, 'KEEPTTL')
end
for queue in pairs(marked) do notify(siding(queue, 'notify'), 1) end
call('HSET', record, 'calls', note(' '), 'at', digits(now), 'by', ARGV[3], 'reason', ARGV[4], 'holder', holder, 'fence', rest and last or '0')
call('PEXPIRE', record, ARGV[5])
return {'revoked', holder, left, ''}
