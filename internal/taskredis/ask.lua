-- A part of a step: attempts that ask for locks. Their tasks need several, or have a policy, or only Go knows what they need.
--
-- Comes after parking.lua and queue.lua.

local EQUAL_KEPT = 604800000   -- ms: for so long it is known which of equal tasks waits

-- How many wait for a lock.
local function count_waiting(lock)
  local n = call('ZCARD', wait_queue_of(lock))
  for _, queue in ipairs(ours('ZRANGE', lines_of(lock), 0, -1)) do n = n + call('ZCARD', siding(queue, 'line:' .. lock)) end
  return n
end

-- Returns the queue and the id of a task that waits for a lock and is equal to another, when it came in us, its ticket, which
-- may be that of an earlier one that it has replaced, and when its wait ends; nil if there is none.
local function equal_of(lock, equal)
  local came, queue, id = string.match(call('HGET', beside(lock, 'equal'), equal) or '', '^(%d+)\n(.-)\n(.*)$')
  if not queue then return nil end
  local ticket = call('ZSCORE', siding(queue, 'line:' .. lock), id)
  local have = call('HMGET', task_of(queue, id), 'state', 'siding_equal', 'siding_lock', 'siding_deadline', 'siding_wait_ends', 'siding_priority')
  if not ticket or have[1] ~= 'retry' or have[2] ~= equal or have[3] ~= lock then return nil end
  local ends = end_of(have[4], have[5])
  if ends > 0 and ends <= now_s then return nil end -- it will not run
  return queue, id, tonumber(came), tonumber(ticket) + (tonumber(have[6] or '') or 0) * HEAD_START, tonumber(have[5] or '')
end

-- Deletes a task that waits.
local function delete_waiting(queue, id, lock)
  local task = task_of(queue, id)
  local unique = call('HGET', task, 'unique_key')
  if unique and try('GET', unique) == id then call('DEL', unique) end
  call('ZREM', siding(queue, 'line:' .. lock), id)
  call('ZREM', asynq(queue, 'retry'), id)
  call('DEL', task)
end

-- Whether a task waits in the line of a queue. asynq's tools, and upkeep, may have deleted those who did.
local function anybody_waits(queue, lock)
  local most = 100
  local heads = ours('ZRANGE', siding(queue, 'line:' .. lock), 0, most - 1, 'WITHSCORES')
  for i = 1, #heads, 2 do
    local have = read(task_of(queue, heads[i]))
    if waits_for(queue, heads[i], have, lock, digits(tonumber(heads[i + 1]))) then return true end
  end
  return #heads == 2 * most -- nobody has looked at those behind
end

-- Whether the line of another queue goes on: somebody serves the queue, and no task holds the line. asynq's tools may have archived
-- the task that held it.
local function goes_on(queue, lock)
  if not Lines().is_served(queue) then return false end
  local held = call('ZSCORE', siding(queue, 'held'), lock)
  if not held or (tonumber(held) or math.huge) <= now then return true end
  local id, ticket = unpack(ours('ZRANGE', siding(queue, 'line:' .. lock), 0, 0, 'WITHSCORES'))
  local have = id and read(task_of(queue, id))
  return not (have and have.siding_held and Hold().holds_until(have.siding_held, have.state, waits_for(queue, id, have, lock, digits(tonumber(ticket)))))
end

-- Returns the keys by which a task with a ticket may take its locks: all, as they are free and nobody has come before it. Else nil,
-- what the first one holds that it cannot have, when to look at that, and which it is.
--   asks   whether the task asks: then all older lines are before it, also those of other queues that do not go on, and get an offer
--   waits  whether it waits for that: if not, only those are before it that wait themselves, in lines that go on
local function keys_for(locks, ticket, queue, asks, waits)
  local keys = {}
  for lock in each(locks) do
    local first, oldest = Lines().first_line(lock)
    local key, value, due = Queue().reserve_found(lock, math.min(oldest, ticket), by)
    if key and oldest < ticket then
      for _, older in ipairs(ours('ZRANGEBYSCORE', lines_of(lock), '-inf', '(' .. digits(ticket))) do
        if asks and waits or (older == queue or goes_on(older, lock)) and (waits or anybody_waits(older, lock)) then key = nil end
      end
      if not key and asks then due = first == queue and now or now + Lines().OFFER end
    end
    if not key or to_upkeep[lock] or asks and more_crashed[queue] then return nil, value, due or now, lock end
    keys[#keys + 1] = key
  end
  return table.concat(keys, '\n')
end

-- Returns the ticket of a task that has come to some locks. If the clock has stepped back since others came, it is behind theirs.
local function behind_all(locks, queue, ticket)
  for lock in each(locks) do
    local last = Parking().last_ticket(queue, lock)
    if last > now + AHEAD then ticket = math.max(ticket, last + 1) end
  end
  return ticket
end

-- Settles an attempt that asks for a lock, or for several, which it gets all at once. It may go before those who wait if it came
-- before them. If a lock is busy, its policy says what becomes of it; but not if it has waited for it before, as then its handler
-- may have begun. Policies that compare tasks are for those that need one lock. Returns 'again' if the task is to ask once more.
local function ask(queue, id, task, attempt, o)
  local have = call('HMGET', task, 'siding_ticket', 'siding_lock', 'siding_wait_ends', 'siding_kind')
  local want, came, ticket = o.want, have[1], tonumber(have[1])
  local own = have[2] and lock_of(have[2]) == want
  if not own then ticket = o.head_start > 0 and ticket - o.head_start or behind_all(want, queue, ticket) end
  if o.once == '1' then call('HSET', task, 'siding_once', 1) end
  if o.always == '1' then
    call('HDEL', task, 'unique_key') -- no wait prolongs that, and nobody deletes the key
  end
  local key, value, due, first_busy = keys_for(want, ticket, queue, true, o.on_busy ~= 'reject')
  if key then
    local fence = take_locks(key, attempt)
    call('ZADD', asynq(queue, 'lease'), leased(ttl, ttl / 2), id)
    call('HSET', task, 'siding_lock', key, 'siding_ticket', digits(ticket))
    return 'granted ' .. fence .. ' ' .. key
  end
  value = type(value) == 'string' and value or ''
  local replaced, equal, wait_ends = '', o.equal, tonumber(have[3] or '') or 0
  if not own then
    if o.on_busy == 'reject' and more_crashed[queue] then return 'again' end -- whether anybody is before it is not known yet
    if o.on_busy == 'reject' then return 'rejected 0 ' .. value end
    local other_queue, other, other_came, other_ticket, others_end
    if equal ~= '' then other_queue, other, other_came, other_ticket, others_end = equal_of(want, equal) end
    -- A lock that is free but for lines that do not go on is not busy: the task waits as long as it is offered to these.
    local is_busy = (other or o.most > 0) and not keys_for(want, ticket, queue, true, false)
    if not is_busy then other = nil end
    -- Those who ask need not do so in the order in which they came.
    if other and (o.on_busy == 'coalesce' or other_came > tonumber(came)) then return 'coalesced ' .. other end
    if other then
      delete_waiting(other_queue, other, want)
      replaced = other
      -- That may have waited for longer already than this one is to wait at all. Then there is no time to take over.
      local in_time = o.max_wait == 0 or now - other_ticket < o.max_wait * 1000000
      if in_time then ticket = other_ticket - o.head_start else others_end = nil end
    elseif is_busy and o.most > 0 then
      local n = count_waiting(want)
      if n >= o.most then return 'rejected ' .. n .. ' ' .. value end
    end
    if equal ~= '' then
      call('HSET', beside(want, 'equal'), equal, came .. '\n' .. queue .. '\n' .. id)
      call('PEXPIRE', beside(want, 'equal'), EQUAL_KEPT)
      call('HSET', task, 'siding_equal', equal)
    end
    if o.head_start > 0 then call('HSET', task, 'siding_priority', o.head_start / HEAD_START) end
    if o.max_wait > 0 then
      wait_ends = math.min(now_s + 1 + o.max_wait, others_end or math.huge)
      call('HSET', task, 'siding_wait_ends', wait_ends)
    end
  end
  local ends = until_of(end_of(o.deadline, wait_ends))
  Lines().wait_in_line(queue, id, want, digits(ticket), ends, several(want) and now or due)
  call('HSET', task, 'siding_ticket', digits(ticket), 'siding_deadline', o.deadline)
  local text = Parking().sentence(first_busy, value ~= '' and value or nil)
  if text ~= '' and call('HSTRLEN', task, 'msg') <= SENTENCE then
    call('HSET', task, 'msg', without(call('HGET', task, 'msg'), call('HGET', task, 'siding_text')) .. text, 'siding_text', text)
  end
  local times = call('HINCRBY', task, 'siding_parked', 1)
  parked[#parked + 1] = {-o.number, want, value, replaced, {id, have[4] or '', digits(times)}}
  return 'parked'
end

return keys_for, ask
