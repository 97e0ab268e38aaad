-- Takes a waiter out of the wait queue. If the lock is reserved for it, the lock goes to whoever came first of the others.
--
-- KEYS[1]  lock
-- ARGV[1]  waiter
-- ARGV[2]  rule       '' for one holder at a time; see parse_rule
-- ARGV[3]  by         who leaves: unique per call
-- ARGV[4]  handoff    for how long the lock is reserved for another waiter, ms
-- ARGV[5]  fence_ttl  how long the mark of a reservation is remembered, ms
-- ARGV[6]  cluster    1 in a Cluster
--
-- Returns nothing.
--
-- Guarantee: the same call made twice has the effect of one.

local lock, waiter, by, handoff, fence_ttl, cluster = KEYS[1], ARGV[1], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1'
local slots, ttl = 'siding:slots', 0

-- include common
-- include locks
-- include queue
-- include lines
-- include notify

rules[lock] = parse_rule(ARGV[2])
local first = first_waiter(lock) == waiter
ours('ZREM', queue_of(lock), waiter)
local key = reserved_for(lock, waiter)
if key then
  free(key, by)
  for queue in pairs(marked) do notify(siding(queue, 'notify'), 1) end
elseif first then
  -- It may have been told to ask again, see call_first. Now the next one hears when the rates allow a start.
  local open, value, _, permits = room(lock)
  local unknown = value == LIMITED and not rule_of(lock) -- who leaves may know of no rule
  if open or unknown or permits and permits.from then call_first(lock) end
end
