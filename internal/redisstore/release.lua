-- Releases a lock: it is kept for the first in line who can come, or deleted
-- when there is none. Or it is kept for a waiter in no line, who comes by itself. KEYS are
-- those of line.lua, which comes after the common case, so that this does not pay for it;
-- and
--
-- KEYS[5]  hash of what this release has answered, by place, if it found a line; kept for 10 s
--
-- ARGV[1]  token    the holder's
-- ARGV[2]  '1' when the client calls waiters by hand
-- ARGV[3]  '1' in a Cluster
-- ARGV[4]  what a reservation made here begins with: 'siding-reserved:<nonce>:'
-- ARGV[5]  grace of a reservation, ms
-- ARGV[6]  how long the mark of a reservation is kept, ms
-- ARGV[7]  the waiter in no line, or ''
-- ARGV[8]  the token's fence, '0' where that is not known
-- ARGV[9]  and those that follow, if any: start, see line.lua
--
-- Returns {0} when the lock was lost, {1} when nobody has to be
-- called, {2, reservation, waiter, ticket} when that waiter has to be,
-- {3, token, fence, ...} when one has begun.
--
-- Guarantees: somebody else's lock is left as it is, and then so is the line. The same call
-- made twice (its reply was lost) is no loss, if there was a line, or if nobody else has been
-- granted the lock: the last fence is still the token's. It names the same reservation, if that
-- stands, or the same one who has begun, whose numbers are text then. It reserves the lock
-- for nobody. A reservation expires.

local value = redis.call('GET', KEYS[1])
local ours = value == ARGV[1]
if ours and ARGV[7] == '' and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return {1}
end

-- (take.lua)
-- (join.lua)
-- (line.lua)
if ours then
  local next = {1}
  if ARGV[7] ~= '' then
    kept(ARGV[4] .. digits(us()) .. ':' .. ARGV[7], ARGV[5], ARGV[6])
  else
    next = pass_on(ARGV[2] == '1', ARGV[3] == '1', ARGV[4], ARGV[5], ARGV[6], ARGV[9] and {unpack(ARGV, 9)})
  end
  local said = {}
  for i, v in ipairs(next) do said[2 * i - 1], said[2 * i] = i, v end
  redis.call('HSET', KEYS[5], unpack(said))
  redis.call('PEXPIRE', KEYS[5], 10000)
  return next
end
if value and begins(value, ARGV[4]) then return passed_on(value, ARGV[2] == '1', ARGV[3] == '1') end
local said = {}
repeat
  local more = redis.call('HGET', KEYS[5], #said + 1)
  said[#said + 1] = more or nil
until not more
if said[1] == '3' and ARGV[9] then return said end
if said[1] then return {1} end
if (not value or reserved(value)) and string.match(redis.call('GET', grant) or '', '^%d+') == ARGV[8] then return {1} end
return {0}
