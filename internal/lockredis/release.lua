-- Releases a lock, and gives it to whoever came first.
--
-- KEYS[1]  key        of the lock, or of its permit
-- ARGV[1]  token      the holder's
-- ARGV[2]  fence      the holder's, 0 if it is not known
-- ARGV[3]  rule       '' for one holder at a time; see parse_rule
-- ARGV[4]  by         who releases it: unique per release
-- ARGV[5]  handoff    for how long the lock is reserved for a waiter, ms
-- ARGV[6]  fence_ttl  how long the mark of a reservation is remembered, ms
-- ARGV[7]  cluster    1 in a Cluster
--
-- Returns 1 when it was released, 0 when the lock was lost. A revoked lock is released, and lost.
--
-- Guarantees: another token's lock stays as it is. The same call made twice is no loss, if somebody waited, or if nobody
-- else was granted the lock: the last fence is still the token's. A revoked lease is lost to both calls.

local key, token, by, handoff, fence_ttl, cluster = KEYS[1], ARGV[1], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local slots, ttl = 'siding:slots', 0

-- include common
-- include locks
-- include queue
-- include lines
-- include notify

local lock = lock_of(key)
rules[lock] = parse_rule(ARGV[3])
local record = beside(lock, 'released:' .. by)
local value = call('GET', key) -- an error if another program has put another type there
local held, revoked = held_by(key, token)
if held then
  if revoked or call('EXISTS', queue_of(lock), lines_of(lock)) > 0 then call('SET', record, revoked and '0' or '1', 'PX', 10000) end
  free(held, by)
  for queue in pairs(marked) do notify(siding(queue, 'notify'), 1) end
  return revoked and 0 or 1
end
local released = call('GET', record)
if released then return tonumber(released) end
return (not value or reserved(value)) and digits(last_fence(lock)) == ARGV[2] and 1 or 0
