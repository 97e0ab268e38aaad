-- A part of a step: beginning an attempt.
--
-- Comes after lines.lua and hold.lua.

local AHEAD = 10000            -- us: what a step gives is ahead of the clock by less, one us for each task that it looks at

-- Whole seconds, which sorted sets compare faster, unless locks are so short that a lease would be over at once. A lease that ends
-- before its lock is only looked at too early, but one of an attempt that is to ask for its lock has to last: nothing else says
-- that its server lives.
local lease_end = tonumber(ttl) < 2000 and leased(ttl, ttl / 2) or digits(math.floor((now / 1000 + ttl - EARLIER) / 1000))
local ask_end, plain_end = digits(now_s + 1 + math.ceil(ttl / 1000)), digits(now_s + PLAIN_LEASE / 1000)

-- Returns an encoded message without what was appended to it, if it still ends with that.
local function without(message, text)
  if text and text ~= '' and string.sub(message, -#text) == text then return string.sub(message, 1, -#text - 1) end
  return message
end

-- Returns what the answer says of the past of a task that begins: '' for most.
--   waits_until       there if it has stood in a line until now: a retry and a snooze end that
--   begun_at, ticket  of the places at which its handler may have begun before, and at which it begins now
local function past(parked, losses, waits_until, begun_at, ticket, freed, freed_by)
  if not parked and not losses and freed == '0' then return '' end
  local waited = parked and waits_until and begun_at ~= ticket
  return (parked or '0') .. ' ' .. (losses or '0') .. (waited and ' 1 ' or ' 0 ') .. freed .. ' ' .. freed_by
end

-- Returns the fields of a task, without its message if messages are large; what Redis says if it has no fields.
local function read(task)
  local have, reply = {}, nil
  if progress.large then
    local fields = {'state', 'unique_key', 'siding_resource', 'siding_priority', 'siding_ticket', 'siding_lock', 'siding_until',
      'siding_deadline', 'siding_parked', 'siding_losses', 'siding_text', 'siding_wait_ends', 'siding_kind', 'siding_policy',
      'siding_equal', 'siding_held', 'siding_once', 'siding_crashes', 'siding_begun_at'}
    reply = try('HMGET', task, unpack(fields))
    for i, value in ipairs(reply) do have[fields[i]] = value end
  else
    reply = try('HGETALL', task)
    for i = 1, #reply, 2 do have[reply[i]] = reply[i + 1] end
  end
  have.err = reply.err
  return have
end

-- Reports whether a task waits for a lock with a ticket. One that is pending, as an operator has it run, still does so at its place,
-- but not if its time is over: then it ends when it is popped.
local function waits_for(queue, id, have, lock, ticket)
  if have.err or have.siding_ticket ~= ticket or not needs(have.siding_lock or '', lock) then return false end
  if have.state == 'pending' then
    local ends = end_of(have.siding_deadline, have.siding_wait_ends)
    return ends == 0 or ends > now_s
  end
  local score = have.state == 'retry' and call('ZSCORE', asynq(queue, 'retry'), id)
  return score and tonumber(score) == tonumber(have.siding_until)
end

-- Returns a ticket for a task that has no place yet: now, and one us more for each that this step has looked at before, as they
-- keep their order.
--   last  the latest ticket or fence of its lock, behind which it comes; nil for none. If this step has given that, it may be ahead
--         of the clock, and then those that come next are behind it, too, also under other locks. If it is further ahead, the clock
--         has stepped back since, which concerns no other lock
local function new_ticket(last)
  progress.came = progress.came + 1
  if not last or last < now + progress.came then return now + progress.came end
  if last < now + AHEAD then progress.came = last + 1 - now end
  return last + 1
end

-- Begins an attempt of a task with these fields, under a lock that it takes by a key, or '' for none. The caller puts the
-- task among what is at work.
--   line    the lock for which it has waited last; nil if it is pending
--   no_run  '-1' or '-2' if it must not run: what the answer has in place of the fence
local function start(q, id, task, lock, ticket, have, line, no_run)
  progress.begun = progress.begun + 1
  local kind = have.siding_kind
  local attempt, fence = attempt_head .. digits(progress.begun), no_run or '0'
  attempt = q.under and attempt .. q.under or attempt .. ':' .. (kind and kind .. ' ' or '') .. id .. holder
  local freed, freed_by, before = '0', '', nil
  if line then fence, before = take_locks(lock, attempt) elseif lock ~= '' then fence = take_lock(lock, attempt) end
  if line then freed, freed_by = Lines().freed_for(line, before) end
  -- One that has no lock yet keeps the place that it has in the line of one.
  call('HSET', task, 'state', 'active', 'siding_attempt', attempt, 'siding_lock', lock ~= '' and lock or have.siding_lock or '', 'siding_ticket', ticket, 'siding_ttl', ttl)
  -- An end that has passed stays: the server finds that the task has waited for too long, and if it dies, the next one has to.
  if have.siding_wait_ends and tonumber(have.siding_wait_ends) > now_s then call('HDEL', task, 'siding_wait_ends') end
  local equal = have.siding_equal
  if equal then -- its handler may have begun: no equal one goes by it any more
    call('HDEL', task, 'siding_equal')
    local latest = beside(have.siding_lock, 'equal')
    if string.match(call('HGET', latest, equal) or '', '\n(.*)$') == q.name .. '\n' .. id then call('HDEL', latest, equal) end
  end
  if have.siding_held then
    Hold().release_line(q.name, task, lock_of(have.siding_lock))
    q.quiet = false
  end
  local message = without(have.msg or call('HGET', task, 'msg') or '', have.siding_text)
  progress.bytes = progress.bytes + #message
  local n = #tasks
  tasks[n + 1], tasks[n + 2], tasks[n + 3], tasks[n + 4] = q.index, id, attempt, lock
  tasks[n + 5], tasks[n + 6], tasks[n + 7], tasks[n + 8] = fence, ticket, message, past(have.siding_parked, have.siding_losses, have.siding_until, have.siding_begun_at, ticket, freed, freed_by)
end

-- Moves those that were parked, and those that have begun, out of pending.
local function flush(q)
  if q.passed == 0 then return end
  if #q.waits > 0 then call('ZADD', q.retry, unpack(q.waits)) end
  for lock, pairs_of_line in pairs(q.lines) do ours('ZADD', siding(q.name, 'line:' .. lock), unpack(pairs_of_line)) end
  if #q.starts > 0 then
    call('ZADD', q.lease, unpack(q.leases))
    call('LPUSH', q.active, unpack(q.starts))
  end
  call('LTRIM', q.pending, 0, -q.passed - 1)
  q.passed, q.waits, q.lines, q.starts, q.leases = 0, {}, {}, {}, {}
end

return AHEAD, lease_end, ask_end, plain_end, without, past, read, waits_for, new_ticket, start, flush
