-- Takes a lock, or joins its wait queue.
--
-- KEYS[1]  lock
--
-- ARGV[1]  token      unique per acquisition
-- ARGV[2]  ttl        of the lock, ms
-- ARGV[3]  fence_ttl  how long the fencing token is remembered, ms
-- ARGV[4]  rule       '' for one holder at a time; see parse_rule
-- ARGV[5]  waiter     '' for a caller that does not queue
-- ARGV[6]  waited     us: how long the waiter has waited already
-- ARGV[7]  by         the name of this call, for a reservation that it makes; see locks.lua
-- ARGV[8]  handoff    for how long a lock is reserved, ms
-- ARGV[9]  retention  of a wait queue to which nobody comes, ms
-- ARGV[10] cluster    1 in a Cluster
--
-- Returns {1, fence, key of the lock or of the permit}; or for a busy lock {0, what it holds or '', ms left, its fence,
-- position, ticket, how many permits are in use, in how many ms its rates allow a start or 0}.
--
-- Guarantees: at most one token holds a lock or a permit. At most as many permits are in use as the rule says, and in no
-- period do more start. The fence is above all earlier ones. The same call made twice holds what it held, or waits where it
-- waited. A holder is not in the wait queue. A waiter overtakes nobody there, except when a reservation has expired. It
-- overtakes no task that came before it within 50 ms after the lock was freed. A lock key of another type is an error, and
-- left as it is.

local lock, token, ttl, fence_ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local waiter, waited, by, handoff, retention, cluster = ARGV[5], tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10] == '1'
local slots = 'siding:slots'

-- include common
-- include locks
-- include queue
-- include lines
-- include notify

rules[lock] = parse_rule(ARGV[4])

-- An earlier try of this call has taken it, and its answer was lost.
local held, revoked = held_by(lock, token)
if held and not revoked then
  renew_lock(held)
  local fence = held == lock and last_fence(lock) or tonumber(call('HGET', permits_of(lock), number_of(held)))
  if fence == 0 then return {1, fenced(lock), held} end -- it was deleted or evicted
  return {1, digits(fence), held}
end

local own = waiter ~= '' and reserved_for(lock, waiter)
if own then give_up(own) end
local key, value, due, permits, ticket
local others = call('EXISTS', queue_of(lock), lines_of(lock)) > 0
if own or not others then
  key, value, due, permits = room(lock)
else
  if waiter ~= '' then ticket = join(lock, waiter, waited, retention) end
  local _, line = first_line(lock)
  key, value, due, permits = serve_found(lock, math.min(ticket or 0, line), by)
  if key then
    local may, later = may_take(lock, ticket or now)
    if not may then key, value, due = nil, 'siding-reserved:line', later end
  end
end
for queue in pairs(marked) do notify(siding(queue, 'notify'), 1) end
if key then
  local fence = take_lock(key, token)
  if others and waiter ~= '' then call('ZREM', queue_of(lock), waiter) end
  return {1, fence, key}
end

if type(value) == 'table' then return value end
local position, at = 0, permits and permits.key or lock
if waiter ~= '' then
  ticket = ticket or join(lock, waiter, waited, retention)
  position = call('ZRANK', queue_of(lock), waiter) + 1
end
local left, fence = call('PTTL', at), digits(last_fence(lock))
if value == 'siding-reserved:line' then left = math.ceil((due - now) / 1000) end
if permits then
  if value == LIMITED or permits.value then value = permits.value or '' end
  if not permits.key then fence = '0' elseif at ~= lock then fence = call('HGET', permits_of(lock), number_of(at)) or '0' end
  if not permits.key then left = 0 end
end
local later = permits and permits.from and math.ceil((due - now) / 1000) or 0
return {0, value, left, fence, position, digits(ticket or 0), permits and permits.used or 0, later}
