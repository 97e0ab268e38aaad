-- Reserves a lock for a waiter, and wakes the waiter. This is put into the scripts that name it,
-- behind take.lua, join.lua and permits.lua. The keys of those scripts are the same:
--
-- KEYS[1]  lock     the token of the holder, or a reservation; a permit, if the lock has a rule
-- KEYS[2]  grant    the last fencing token; a trailing '*' says that the lock
--                   has been reserved since it was last granted
-- KEYS[3]  queue    the wait queue: sorted set of waiters by ticket
-- KEYS[4]  paused   likewise: waiters of paused groups
--
-- A waiter's name says how it is woken.
--   'siding-goroutine:<listener>:<number>:<resource>' is a goroutine that listens on the channel
--     'siding-goroutine:<listener>'. These scripts publish its name there.
--   'siding-task:<queue>:<id>' is a parked task. These scripts wake it, if the function
--     wake_waiter(waiter, ticket, start) comes before this; or else the client, stepwise; or else
--     whoever listens on 'siding-task:<queue>'.
--   Only the client wakes a waiter of any other name.
--
-- wake_waiter returns 'woken'; 'gone' if the waiter cannot come any more; 'paused' if it cannot
-- come for now; 'started' and {the holder's name, ...} if it has started and holds the lock; or
-- anything else if the client has to wake it. wake_waiter(waiter, ticket, start, true) changes nothing.
-- It returns 'started' and the same table as an earlier call with this start, if that has started the
-- waiter and the waiter is still active. Else it returns nil.
--
-- start is {id of the next token, ttl of the lock in ms, retention of the fencing token in ms,
-- and what else wake_waiter wants to know}, or nil.

local lock, grant, queue, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- If lock is a permit, base is the lock that it is of. rule is that of the lock, if the caller knows
-- it. See permits.lua.
local base, rule = lock_of(lock), nil
if base then with_permits() end

local function begins(s, prefix) return string.sub(s, 1, #prefix) == prefix end

-- Takes all waiters of the waiter's group, which is paused, out of the wait queue. They keep
-- their tickets.
local function pause_group(waiter, retention)
  local group, from, seen = (channel(waiter) or waiter) .. ':', 0
  repeat
    local some = redis.call('ZRANGE', queue, from, from + 499, 'WITHSCORES')
    local moved, waiters = {}, {}
    for i = 1, #some, 2 do
      if begins(some[i] .. ':', group) then
        waiters[#waiters + 1] = some[i]
        moved[#moved + 1], moved[#moved + 2] = some[i + 1], some[i]
      end
    end
    if #waiters > 0 then
      redis.call('ZADD', paused, unpack(moved))
      redis.call('ZREM', queue, unpack(waiters))
    end
    seen = #some / 2
    from = from + seen - #waiters
  until seen < 500
  redis.call('PEXPIRE', paused, retention)
end

-- Returns what is published of the reservation for a parked task.
local function message_of(ticket, reservation) return ticket .. '\n' .. lock .. '\n' .. reservation end

-- Publishes a message for the waiter. Returns whether anybody listens.
local function published(waiter, message, cluster)
  local listeners = redis.pcall('PUBLISH', channel(waiter), message) -- an error if an ACL forbids it
  return type(listeners) == 'number' and (listeners > 0 or cluster)
end

-- Wakes a waiter for whom the lock is about to be reserved. Returns whether it comes, nil if it has to
-- be told of the reservation; and {the holder's name, ...} if it has started.
local function woken(waiter, ticket, cluster, retention, start)
  if begins(waiter, 'siding-goroutine:') then
    redis.call('ZREM', queue, waiter)
    return published(waiter, waiter, cluster)
  end
  if not wake_waiter then return end
  local outcome, started = wake_waiter(waiter, ticket, start)
  if outcome == 'paused' then
    pause_group(waiter, retention)
    return false
  end
  if outcome == 'woken' or outcome == 'gone' or outcome == 'started' then
    redis.call('ZREM', queue, waiter)
    return outcome ~= 'gone', started
  end
end

-- Reserves the lock for the waiter that the reservation names, until the hand-off timeout is over.
local function reserve_for(reservation, timeout, retention)
  redis.call('SET', lock, reservation, 'PX', timeout)
  local last = string.match(redis.call('GET', grant) or '0', '^%d+') or '0'
  redis.call('SET', grant, last .. '*', 'PX', retention)
  if base then keep_permit(lock, base, '0', timeout) end
end

-- Returns the first in the wait queue from an index on, its ticket and its index. Waiters of
-- unreachable groups, and those who come already, are skipped, but not me. Returns nothing when none
-- of the first 2,000 can come; each of them takes 0.5 us. Mostly the very first can. Its index is passed
-- as a text, because Redis takes 0.5 us to format a number.
local function first_from(index, me, unreachable, coming)
  local at = index == 0 and '0' or index
  local some = redis.call('ZRANGE', queue, at, at, 'WITHSCORES')
  while some[1] and index < 2000 do
    for i = 1, #some, 2 do
      if some[i] == me or not (coming and coming[some[i]]) and not unreachable[channel(some[i]) or ''] then return some[i], some[i + 1], index end
      index = index + 1
    end
    some = redis.call('ZRANGE', queue, index, index + 499, 'WITHSCORES')
  end
end

-- Reserves the lock, which nobody holds, for the first in the wait queue who can come.
--   me        the waiter that asks, '' for none
--   stepwise  whether the client wakes those whom these scripts cannot wake; else they are
--             skipped, and keep their positions
--   cluster   whether there may be listeners that PUBLISH does not count
-- Returns the waiter, its reservation and, if the client has to wake it, its ticket. Returns
-- only me if that is the first, and nothing when nobody can come. If the waiter has started,
-- it returns the waiter, nil, its ticket and {its token, its fence, ...}.
local function reserve(me, stepwise, cluster, nonce, timeout, retention, start)
  -- Each of the first hundred is tried. Behind them only one of each group is. So a long wait
  -- queue of waiters whom nobody can wake costs little. A waiter behind 2,000 comes by itself.
  local index, skipped, unreachable, coming = 0, 0, {}, base and coming_waiters(base)
  while true do
    local waiter, score, at = first_from(index, me, skipped < 100 and {} or unreachable, coming)
    if not waiter or waiter == me then return waiter end
    index = at
    local ticket = string.find(score, '^%d+$') and score or digits(tonumber(score)) -- Redis mostly writes digits
    local comes, started = woken(waiter, ticket, cluster, retention, start)
    if started then
      local token = 'siding:' .. start[1] .. ':' .. table.remove(started, 1)
      redis.call('SET', lock, token, 'PX', start[2])
      local fence = fenced(grant, start[3])
      if base then
        keep_permit(lock, base, fence, start[2])
        count_start(base, rule.rates)
      end
      return waiter, nil, ticket, {token, fence, unpack(started)}
    end
    local reservation, told = nonce .. digits(us()) .. ':' .. waiter, comes == nil
    if told then -- by the client, or by whoever listens; it stays queued until then
      comes = stepwise or channel(waiter) and published(waiter, message_of(ticket, reservation), cluster)
    end
    if comes then
      reserve_for(reservation, timeout, retention)
      return waiter, reservation, told and stepwise and ticket
    end
    if redis.call('ZSCORE', queue, waiter) then
      index, skipped, unreachable[channel(waiter) or ''] = index + 1, skipped + 1, true
    end
  end
end

-- Gives the lock up, and returns whether it may be handed off. A lock with a rule may not if the
-- limit was lowered, or if the rates allow no start yet. Then the second is in how many ms the client
-- sweeps the lock, nil for never.
local function give_up()
  if not base and not rule then return true end
  if not base then -- it was taken without a permit, when its rule was not known
    redis.call('DEL', lock)
    return false, redis.call('EXISTS', queue, paused) == 1 and 1 or nil
  end
  free(lock, base)
  if not rule or redis.call('EXISTS', queue, paused) == 0 then return false end
  local number, later = free_permit(base, rule)
  return number, later
end

-- Hands off the lock, which the caller holds or had reserved. Reserves the lock for the first in
-- the wait queue who can come, or else frees it. Returns {1} when the client has to wake nobody, {1,
-- ms} when the client has to sweep the lock after that time, {2, reservation, waiter, ticket, lock}
-- when the client has to wake that waiter, {3, token, fence, ...} when a waiter has started. Only then
-- there is a second value, which release.lua records: '3 <fence> <ticket> <waiter>'.
local function hand_off(stepwise, cluster, nonce, timeout, retention, start)
  local may, later = give_up()
  if not may then return {1, later} end
  local waiter, reservation, ticket, started = reserve('', stepwise, cluster, nonce, timeout, retention, start)
  if not waiter and not base then redis.call('DEL', lock) end
  if started then return {3, unpack(started)}, '3 ' .. started[2] .. ' ' .. ticket .. ' ' .. waiter end
  if not ticket then return {1} end
  return {2, reservation, waiter, ticket, lock}
end

-- Reports whether a sweep names a reservation: one that an earlier try of the call has made, or one that
-- is older than overdue, in ms, unless that is '0'. The answer to the call that made it may be lost.
local function unheard(value, nonce, overdue)
  local since = type(value) == 'string' and reserved(value)
  return since and (begins(value, nonce) or overdue ~= '0' and us() - since > overdue * 1000)
end

-- Returns what hand_off returned when it made the reservation value. A waiter that was woken is
-- not queued any more. If the waiter is still queued, and the client does not wake it, the
-- reservation is published again.
local function handed_off(value, stepwise, cluster)
  local _, waiter = reserved(value)
  local ticket = redis.call('ZSCORE', queue, waiter)
  if not ticket then return {1} end
  ticket = digits(tonumber(ticket))
  if stepwise then return {2, value, waiter, ticket, lock} end
  if channel(waiter) then published(waiter, message_of(ticket, value), cluster) end
  return {1}
end

