-- The wait queue of a lock: goroutines that wait for it, in their order of arrival.
--
--   {<lock>}:queue        waiters by ticket, the time at which each came, us
--
-- A waiter is named 'siding-goroutine:<listener>:<rest>', and hears its name on the channel 'siding-goroutine:<listener>'.
--
-- Comes after locks.lua, and after cluster: whether there may be listeners that PUBLISH does not count. Functions that reserve
-- a lock need given, with handoff: for how long it is reserved for a waiter, ms; and fence_ttl.

-- Returns the goroutine that came first, and its ticket.
local function first_waiter(lock)
  local head = ours('ZRANGE', wait_queue_of(lock), 0, 0, 'WITHSCORES')
  return head[1], tonumber(head[2])
end

-- Tells a waiter to come. Returns whether anybody listens.
local function tell_waiter(waiter)
  local channel = string.match(waiter, '^siding%-%a+:[^:]*') or waiter
  local listeners = try('PUBLISH', channel, waiter) -- an error if an ACL forbids it
  return type(listeners) == 'number' and (listeners > 0 or cluster)
end

-- Reserves a lock for goroutines, by what open_key has found free, as long as their turn is before a ticket. by is the name of
-- the call, for the reservation. A waiter to whom nobody listens has gone: it is dropped, and the next one is tried. Returns
-- what open_key returns of the lock after that.
local function reserve(lock, before, by)
  local key, value, due, permits = open_key(lock)
  while key do
    local waiter, ticket = first_waiter(lock)
    if not waiter or ticket >= before then break end
    call('ZREM', wait_queue_of(lock), waiter)
    if tell_waiter(waiter) then
      local reservation = 'siding-reserved:' .. by .. ':' .. digits(now) .. ':' .. waiter
      if key == lock then
        call('SET', key, reservation, 'PX', given.handoff)
        key, value, due, permits = open_key(lock)
      else
        key, value, due, permits = Permits().reserve(key, lock, rule_of(lock), permits, reservation, given.handoff)
      end
      call('SET', beside(lock, 'fence'), digits(last_fence(lock)) .. '*', 'PX', given.fence_ttl + given.handoff)
    end
  end
  return key, value, due, permits
end

-- Serves those who came before a ticket of a lock that may be free as its holder has gone. Only if a reservation was the
-- last that was heard of the lock, it is for whoever comes by. So nobody waits for more than one waiter that has gone.
local function reserve_found(lock, before, by)
  local key, value, due, permits = open_key(lock)
  if not key or not first_waiter(lock) then return key, value, due, permits end
  local _, expired = last_fence(lock)
  if expired and not (permits and permits.reservations > 0) then return key, value, due, permits end
  return reserve(lock, before, by)
end

-- Tells the first waiter to ask again, without a reservation: it may not have the lock yet, and hears when it may.
local function tell_first(lock)
  local waiter = first_waiter(lock)
  while waiter and not tell_waiter(waiter) do
    call('ZREM', wait_queue_of(lock), waiter)
    waiter = first_waiter(lock)
  end
end

-- Puts a waiter into the wait queue, in which it may be already.
--   waited     how long it has waited already, us: it comes before those who are newer
--   retention  of a wait queue to which nobody comes, ms
-- Returns its ticket.
local function join(lock, waiter, waited, retention)
  local wait_queue = wait_queue_of(lock)
  local ticket = tonumber(ours('ZSCORE', wait_queue, waiter) or '0')
  if ticket == 0 then
    ticket = now - waited
    if waited == 0 then -- a newcomer: behind the others, also when the clock stepped back
      ticket = math.max(now, tonumber(ours('ZRANGE', wait_queue, -1, -1, 'WITHSCORES')[2] or '0') + 1)
    end
    call('ZADD', wait_queue, digits(ticket), waiter)
  end
  call('PEXPIRE', wait_queue, retention)
  return ticket
end

return first_waiter, reserve, reserve_found, tell_first, join
