-- Takes a lock, or joins its wait queue.
--
-- given has:
--   token      unique per acquisition
--   ttl        of the lock, ms
--   fence_ttl  how long the fencing token is remembered, ms
--   rule       '' for one holder at a time; see parse_rule
--   waiter     '' for a caller that does not queue
--   waited     us: how long the waiter has waited already
--   by         the name of this call, for a reservation that it makes; see locks.lua
--   handoff    for how long a lock is reserved, ms
--   retention  of a wait queue to which nobody comes, ms; it is kept for longer if those in it are told to come later
--
-- Returns {1, fence, key of the lock or of the permit}; or for a busy lock {0, what it holds or '', ms left, its fence,
-- position, how many permits are in use, in how many ms its rates allow a start or 0}.
--
-- Guarantees: at most one token holds a lock or a permit. At most as many permits are in use as the rule says, and in no
-- period do more start. The fence is above all earlier ones. The same call made twice holds what it held, or waits where it
-- waited. A holder is not in the wait queue. A waiter overtakes nobody there, except when a reservation has expired. It
-- overtakes no task that came before it within 50 ms after the lock was freed. A lock key of another type is an error, and
-- left as it is.
--
-- Comes after lines.lua.
local function acquire(lock)
  local token, waiter, waited = given.token, given.waiter, tonumber(given.waited)
  rules[lock] = given.rule ~= '' and Permits().parse_rule(given.rule)

  -- An earlier try of this call has taken it, and its answer was lost.
  local found = value_of(lock)
  local held, revoked = held_by(lock, token, found)
  if held and not revoked then
    renew_lock(held)
    local fence = held == lock and last_fence(lock) or tonumber(call('HGET', Permits().permits_of(lock), Permits().number_of(held)))
    if fence == 0 then return {1, fenced(lock), held} end -- it was deleted or evicted
    return {1, digits(fence), held}
  end

  local key, value, due, permits, ticket
  local own = waiter ~= '' and reserved_for(lock, waiter)
  if own then
    delete_key(own)
    found = nil
  end
  local others = waiting_for(lock) > 0
  if own or not others then
    key, value, due, permits = open_key(lock, found)
  else
    if waiter ~= '' then ticket = Queue().join(lock, waiter, waited, given.retention) end
    local _, line = Lines().first_line(lock)
    key, value, due, permits = Queue().reserve_found(lock, math.min(ticket or 0, line), given.by)
    if key then
      local may, later = Lines().may_take(lock, ticket or now)
      if not may then key, value, due = nil, 'siding-reserved:line', later end
    end
  end
  if key then
    local fence = take_lock(key, token)
    if others and waiter ~= '' then call('ZREM', wait_queue_of(lock), waiter) end
    return {1, fence, key}
  end

  if type(value) == 'table' then return value end
  local position, at = 0, permits and permits.key or lock
  if waiter ~= '' then
    if not ticket then Queue().join(lock, waiter, waited, given.retention) end
    position = call('ZRANK', wait_queue_of(lock), waiter) + 1
  end
  local left, fence, offered = call('PTTL', at), digits(last_fence(lock)), value == 'siding-reserved:line'
  if permits then
    if not offered and (value == LIMITED or permits.value) then value = permits.value or '' end
    if not permits.key then left, fence = 0, '0' elseif at ~= lock then fence = call('HGET', Permits().permits_of(lock), Permits().number_of(at)) or '0' end
  end
  if offered then left = math.ceil((due - now) / 1000) end
  local later = permits and permits.from and math.ceil((due - now) / 1000) or 0
  if waiter ~= '' and math.max(left, later) + given.handoff > tonumber(given.retention) then -- it may sleep for so long
    call('PEXPIRE', wait_queue_of(lock), math.max(left, later) + given.handoff)
  end
  return {0, value, left, fence, position, permits and permits.used or 0, later}
end

return acquire
