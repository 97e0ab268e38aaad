-- A part of a step, recovery: what has crashed goes back to its place, before anybody looks at the lock.
--
-- Comes after settle.lua.

local MOST_CRASHED, MOST_ENDED = 20, 500

local function leave_active(queue, id)
  call('LREM', asynq(queue, 'active'), 0, id)
  call('ZREM', asynq(queue, 'lease'), id)
end

-- Puts one back. Tasks without a lock, and those that have crashed too often, are left to upkeep: they use a retry.
local function put_back(queue, index, id)
  local lease, task = asynq(queue, 'lease'), task_of(queue, id)
  local have = try('HMGET', task, 'state', 'siding_attempt', 'siding_lock', 'siding_ticket', 'siding_crashes', 'siding_deadline', 'siding_wait_ends', 'siding_began', 'siding_resource', 'siding_kind')
  local attempt, lock, ticket, crashed = have[2], have[3], have[4], tonumber(have[5] or '0')
  local free_crash, back_in_line = crashed < free_crashes and (no_retries_too or have[8] ~= attempt), nil
  if have.err or have[1] ~= 'active' then -- no task, or one that is elsewhere
    if have.err then troubles[#troubles + 1] = task .. ': ' .. have.err end
    -- A script that failed in the middle may have taken it out of pending. If it is there, it is dropped once popped twice.
    if have[1] == 'pending' then to_pending(queue, id, task) end
    leave_active(queue, id)
  elseif attempt and lock and lock ~= '' and ticket then
    local key = held_by(lock, holder_of(attempt))
    if key then -- its holder may trust it for so long
      call('ZADD', lease, leased(left_of(key)), id)
    elseif free_crash then
      back_in_line = lock_of(lock)
      local ends, due = until_of(end_of(have[6], have[7])), nil
      if not several(back_in_line) then due = select(3, open_key(back_in_line)) end -- several are looked at together
      Lines().wait_in_line(queue, id, back_in_line, ticket, ends, due or now)
      call('HSET', task, 'siding_begun_at', have[7] and '' or ticket) -- one that has waited for too long has not begun
    elseif crashed >= free_crashes then
      -- Upkeep is about to end it. Until then nobody of this queue goes before it, as it may be to hold its line. One that
      -- has crashed less often, and has no retries, is left alone for half a minute, as its server may live.
      local soon = now + RECHECK
      for one in each(lock_of(lock)) do
        busy[one] = {value = '', due = soon, text = Parking().sentence(one, nil), of = {}}
        to_upkeep[one] = to_upkeep[one] or {}
        to_upkeep[one][queue] = true
      end
    end
  elseif attempt and have[9] and have[9] ~= '' and free_crash then
    -- It was to ask for its lock first, so its handler has not begun.
    local locks = {}
    for name in each(have[9]) do locks[#locks + 1] = prefix .. name end
    back_in_line = table.concat(locks, '\n')
    to_pending(queue, id, task)
  end
  if back_in_line then
    call('HSET', task, 'siding_crashes', crashed + 1)
    call('HDEL', task, 'siding_attempt')
    leave_active(queue, id)
    local n = #recovered
    recovered[n + 1], recovered[n + 2], recovered[n + 3], recovered[n + 4] = index, id, back_in_line, have[10] or ''
  end
end

-- Puts back what has crashed in a queue, once for each queue, and returns whether there may be more.
--   index  what the answer has in place of the queue's name
local function recover(queue, index)
  if more_crashed[queue] ~= nil then return more_crashed[queue] end
  local before, seen = #recovered, MOST_ENDED
  local ended_leases = call('ZRANGEBYSCORE', asynq(queue, 'lease'), '-inf', in_seconds(0), 'LIMIT', 0, MOST_ENDED)
  for i, id in ipairs(ended_leases) do
    if (#recovered - before) / 4 == MOST_CRASHED then
      seen = i - 1
      break
    end
    local ok, found = pcall(put_back, queue, index, id)
    if not ok then troubles[#troubles + 1] = task_of(queue, id) .. ': ' .. text_of(found) end
  end
  more_crashed[queue] = #ended_leases > seen
  return more_crashed[queue]
end

return recover
