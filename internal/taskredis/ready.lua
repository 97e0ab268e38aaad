-- A part of a step, the ready set: looking at a lock that is due, and beginning what comes next in its line.
--
-- Comes after start.lua, ask.lua and recover.lua.

local MOST_HEADS = 100

-- Ends the line of a queue, which has become empty. Whoever is parked next begins it again.
local function no_line(q, lock)
  call('ZREM', q.ready, lock)
  call('ZREM', lines_of(lock), q.name)
  if busy[lock] and busy[lock].of[q.name] then busy[lock].of[q.name].joined = false end
end

-- Keeps what is said of a line up to date, of which the head has left.
--   head, ticket  who is first now, nil for nobody
--   moves         whether to say when to look next, as the one that left has the lock; or to end the line, if nobody is left
local function next_in_line(q, lock, head, ticket, moves)
  if head then
    call('ZADD', lines_of(lock), digits(tonumber(ticket)), q.name)
    if not moves then return end
    -- While the rule has room for more, the lock stays due.
    local due = now + ttl * 1000
    if rule_of(lock) then
      local _, _, later = open_key(lock)
      due = later or now
    end
    call('ZADD', q.ready, digits(due), lock)
  elseif moves then
    no_line(q, lock)
  end
end

-- Begins an attempt of a task that has waited for a lock, and leaves its line to the caller.
--   key, line  as start has them
local function start_waiting(q, id, task, key, ticket, have, lock, line)
  call('LPUSH', q.active, id)
  call('ZADD', q.lease, q.lease_end or lease_end, id)
  start(q, id, task, key, ticket, have, line)
  if have.state == 'pending' then
    call('LREM', asynq(q.name, 'pending'), 1, id)
    q.ids = {} -- the step has read pending before that
  else
    call('ZREM', q.retry, id)
  end
end

-- Looks at a lock of the ready set that is due. Returns whether an attempt has begun.
local function look(q, lock)
  local function later(us)
    call('ZADD', q.ready, digits(us), lock)
    return false
  end
  if to_upkeep[lock] and to_upkeep[lock][q.name] then return later(now + RECHECK) end
  local key, value, due = open_key(lock)
  if type(value) == 'table' and value.err then
    troubles[#troubles + 1] = lock .. ': ' .. value.err
  end
  if not key then return later(due) end
  flush(q) -- one of those may come first
  local line = siding(q.name, 'line:' .. lock)
  for _ = 1, MOST_HEADS do
    local heads = ours('ZRANGE', line, 0, 1, 'WITHSCORES')
    local id, ticket = heads[1], heads[2] and digits(tonumber(heads[2]))
    if not id then
      no_line(q, lock)
      return false
    end
    local task = q.task .. id
    local have = read(task)
    local waits = waits_for(q.name, id, have, lock, ticket)
    local goes_on_at = have.siding_held and Hold().holds_until(have.siding_held, have.state, waits)
    if goes_on_at then
      Hold().list_line(q.name, lock, have.siding_held) -- as several tasks may hold a line, and the one before may have ended its hold
      return later(math.min(goes_on_at, now + Hold().LOOK))
    end
    if waits and have.siding_lock ~= lock then
      call('ZADD', lines_of(lock), ticket, q.name) -- whoever has left the line without a word would be first for ever
      -- Until it has them all it holds none. Whoever frees the others has their lines looked at; this is for those that tell nobody.
      key, value, due = Ask().keys_for(have.siding_lock, tonumber(ticket), q.name, false, true)
      if not key then return later(due > now and math.min(due, now + RECHECK) or now + RECHECK) end
    elseif waits and Queue().first_waiter(lock) then
      key, value, due = Queue().reserve_found(lock, tonumber(ticket), by)
      if not key then return later(due) end
    end
    if waits then
      start_waiting(q, id, task, key, ticket, have, lock, lock)
    elseif have.err then
      troubles[#troubles + 1] = task .. ': ' .. have.err
      call('ZREM', q.retry, id)
    end
    if not waits then call('ZREM', siding(q.name, 'held'), lock) end -- as asynq's tools may have deleted the task that held it
    call('ZREM', line, id)
    next_in_line(q, lock, heads[3], heads[4], waits)
    if waits then
      for other in each(have.siding_lock) do
        if other ~= lock then
          local line = siding(q.name, 'line:' .. other)
          call('ZREM', line, id)
          local heads = ours('ZRANGE', line, 0, 0, 'WITHSCORES')
          next_in_line(q, other, heads[1], heads[2], true)
        end
      end
      return true
    end
  end
  return false
end

-- Begins attempts of the tasks that come next in the line of an attempt's lock, as long as they are of its kind and could run:
-- it runs them together with its own task. They have no lock of their own, and keep the ticket for the line. A task that has crashed
-- runs alone: else it would take its neighbours along each time.
local function more(i, queue, id, attempt, o)
  local known, state, lock, crashed = unpack(call('HMGET', task_of(queue, id), 'siding_attempt', 'state', 'siding_lock', 'siding_crashes'))
  local holds, revoked = held_by(lock or '', attempt)
  if aged or crashed or known ~= attempt or state ~= 'active' or not holds or revoked or several(lock) then return end
  if recover(queue, -i) or call('EXISTS', asynq(queue, 'paused')) == 1 then return end
  lock = lock_of(lock)
  if to_upkeep[lock] then return end
  local q = {
    index = -i, number = digits(-i), name = queue, under = '\n' .. attempt, lease_end = leased(left_of(holds)),
    active = asynq(queue, 'active'), lease = asynq(queue, 'lease'), retry = asynq(queue, 'retry'), ready = siding(queue, 'ready'),
  }
  queues[-i] = q
  local line = siding(queue, 'line:' .. lock)
  local heads, at = ours('ZRANGE', line, 0, o.most, 'WITHSCORES'), 1
  while heads[at] and at < 2 * o.most and progress.bytes <= MOST_BYTES do
    local id, ticket = heads[at], digits(tonumber(heads[at + 1]))
    local task = task_of(queue, id)
    local have = read(task)
    local ends = end_of(have.siding_deadline, have.siding_wait_ends)
    if not waits_for(q.name, id, have, lock, ticket) or have.siding_lock ~= lock or have.siding_held or have.siding_once or have.siding_crashes or ends > 0 and ends <= now_s then break end
    if not has_prefix(have.msg or call('HGET', task, 'msg') or '', o.head) then break end
    start_waiting(q, id, task, '', ticket, have, lock)
    call('ZREM', line, id)
    at = at + 2
  end
  if at > 1 then next_in_line(q, lock, heads[at], heads[at + 1], not heads[at]) end -- it comes due when it did before
end

return look, more
