-- A part of a step, settling: what becomes of a task whose attempt has ended, and of its lock.
--
-- Comes after ask.lua, hold.lua, free.lua, asynq.lua and try_queue.

local ANSWERS = 2000           -- ms: within this time a server that has been told of a loss says what becomes of the task

local ended = {}   -- by queue: ids that leave active and lease
local deleted = {} -- keys of tasks
local counts = {}  -- by queue: {processed, failed}

local function leaves(queue, id)
  ended[queue] = ended[queue] or {}
  table.insert(ended[queue], id)
end

local function counted(queue, failed)
  local c = counts[queue] or {0, 0}
  c[1], c[2] = c[1] + 1, c[2] + failed
  counts[queue] = c
end

-- Puts a task at the head of pending.
local function to_pending(queue, id, task)
  call('RPUSH', asynq(queue, 'pending'), id)
  call('HSET', task, 'state', 'pending')
end

-- Puts back a task that was taken.
local function back_to_pending(queue, id, task)
  to_pending(queue, id, task)
  call('HDEL', task, 'pending_since') -- as asynq does, so that what has run does not look as if it had waited
  marked[queue] = true
end

-- Returns the ticket of a task, and until when it stays in the retry set while it waits.
local function place_of(task)
  local ticket, deadline, wait_ends = unpack(call('HMGET', task, 'siding_ticket', 'siding_deadline', 'siding_wait_ends'))
  return ticket, until_of(end_of(deadline, wait_ends))
end

-- Writes down that the handler of a task may have begun at its place: the time since its ticket is no wait any more.
local function begun_at_place(task)
  local ticket = call('HGET', task, 'siding_ticket')
  call('HDEL', task, 'siding_wait_ends')
  if ticket then call('HSET', task, 'siding_begun_at', ticket) end
end

-- Writes down for how many s a task may still wait at its place, unless its handler may have begun there.
local function may_wait(task, most)
  local ticket, begun_at = unpack(call('HMGET', task, 'siding_ticket', 'siding_begun_at'))
  if ticket ~= begun_at then call('HSET', task, 'siding_wait_ends', digits(now_s + 1 + most)) end
end

-- Has a task wait for a lock in the place that it had before.
local function back_in_line(queue, id, task, lock)
  local ticket, ends = place_of(task)
  Lines().wait_in_line(queue, id, lock, ticket, ends, now)
end

-- Puts an attempt back of which nobody has heard, if it is its task's latest and was to run under the lock of another one.
local function give_back(queue, id, attempt, lock)
  local task = task_of(queue, id)
  local have = call('HMGET', task, 'siding_attempt', 'state')
  if have[1] ~= attempt or have[2] ~= 'active' or holder_of(attempt) == attempt then return end
  back_in_line(queue, id, task, lock)
  call('HDEL', task, 'siding_attempt')
  leaves(queue, id)
end

-- Frees the lock that an attempt held by a key, if any.
local function let_go(key, queue, trace)
  if key then free(key, trace ~= '' and by .. '-trace-' .. trace or by, queue) end
end

local function settle(queue, id, attempt, lock, trace, kind, o)
  local task = task_of(queue, id)
  local latest, state, task_lock = unpack(call('HMGET', task, 'siding_attempt', 'state', 'siding_lock'))
  -- lock is what the attempt trusts that it holds. If that is '', it has had none; or it does not trust its lock any more, and may
  -- hold it all the same, as the task says.
  local lock_owner = holder_of(attempt) -- the first of its batch, or itself
  local held_keys, revoked = held_by(lock ~= '' and lock or task_lock or '', lock_owner)
  local own_keys = lock_owner == attempt and held_keys or nil -- which it is to free
  if latest ~= attempt or state ~= 'active' then
    let_go(own_keys, queue, trace)
    if not state then leaves(queue, id) end -- the task was deleted: it is nowhere
    return 'stale'
  end
  -- A requeue keeps the task's place without the lock, too. Any other end is answered with 'lost', and the server, which lives, says
  -- again what becomes of the task. It may say that the task keeps its place, so until then nobody gets its lock: one that has run
  -- out is marked as revoked.
  local lost, asks = lock ~= '' and (not held_keys or revoked), kind == 'ask'
  if lost and asks then
    -- It is not at work yet. It may have been granted what it asks for, unheard, in place of the lock that it had: that is freed.
    kind, own_keys = 'requeue', held_by(task_lock or '', lock_owner)
  end
  if lost and kind ~= 'requeue' then
    for one in each(lock) do -- but no permit; nor one that a failover has forgotten, which nobody would free
      if lock_of(one) == one and needs(task_lock or '', one) then call('SET', one, revoked_token(lock_owner), 'PX', ANSWERS, 'NX') end
    end
    -- A failover may have left it a lock that it had before. If its server says nothing, the task is taken for crashed before anybody
    -- else has its lock. Last: if this fails in the middle, recovery still comes before the others.
    local other, gone = held_by(task_lock or '', lock_owner)
    call('ZADD', asynq(queue, 'lease'), leased(other and not gone and left_of(other) or ANSWERS), id)
    return 'lost'
  end

  if o.wait_over == '1' then call('HSET', task, 'siding_wait_ends', now_s) end -- its lock came too late
  if kind == 'snooze' and o.max_wait > 0 then may_wait(task, o.max_wait) end
  if o.begun == '1' then begun_at_place(task) end
  local line_locks = task_lock and task_lock ~= '' and lock_of(task_lock) -- in whose lines its place is
  if kind == 'done' or kind == 'complete' then
    if kind == 'complete' then
      call('ZADD', asynq(queue, 'completed'), o.at, id)
      call('HSET', task, 'state', 'completed', 'msg', o.message)
      call('HDEL', task, 'siding_ticket', 'siding_wait_ends')
    else
      deleted[#deleted + 1] = task
    end
    if o.unique ~= '' and try('GET', o.unique) == id then deleted[#deleted + 1] = o.unique end
    counted(queue, 0)
  elseif kind == 'retry' or kind == 'snooze' then
    if o.order == 'hold' and line_locks then
      local _, ends = place_of(task)
      Hold().hold_line(queue, id, task, line_locks, now + o.after)
      call('ZADD', asynq(queue, 'retry'), ends, id)
      call('HSET', task, 'siding_until', ends)
      if o.wait_over ~= '1' then call('HDEL', task, 'siding_wait_ends') end
    elseif o.order == 'head' and own_keys then
      local due, ticket, ends = now + o.after, place_of(task)
      if o.waits == '1' then -- it has not begun, as a lock that only its server could ask for was busy
        for key in each(own_keys) do
          if lock_of(key) ~= key then Permits().not_started(key, lock_of(key)) end
        end
      end
      let_go(own_keys, queue, trace)
      Lines().wait_in_line(queue, id, line_locks, ticket, ends, due)
      for lock in each(line_locks) do ours('ZADD', siding(queue, 'ready'), digits(due), lock) end
      own_keys = nil
    else
      call('ZADD', asynq(queue, 'retry'), o.at, id)
      call('HDEL', task, 'siding_until')
      if kind == 'retry' or o.order == 'last' then call('HDEL', task, 'siding_ticket', 'siding_lock') end
      if kind == 'retry' and o.wait_over ~= '1' then call('HDEL', task, 'siding_wait_ends') end
      if kind == 'snooze' and o.order == '' and o.wait_over ~= '1' then begun_at_place(task) end
    end
    call('HSET', task, 'state', 'retry', 'msg', o.message)
    call('HDEL', task, 'siding_text')
    if o.losses then call('HSET', task, 'siding_losses', o.losses) end
    if o.waits == '1' then call('HINCRBY', task, 'siding_parked', 1) end
    if o.counts == '1' then counted(queue, 1) end
  elseif kind == 'archive' then
    archive(queue, id, o.unique)
    call('HSET', task, 'state', 'archived', 'msg', o.message)
    call('HDEL', task, 'siding_until', 'siding_text', 'siding_wait_ends')
    if o.order == 'hold' and line_locks then
      Hold().hold_line(queue, id, task, line_locks, nil)
    else
      call('HDEL', task, 'siding_ticket', 'siding_lock')
    end
    counted(queue, 1)
  elseif kind == 'requeue' and lock ~= '' then
    back_in_line(queue, id, task, lock_of(lock))
  elseif kind == 'requeue' then
    back_to_pending(queue, id, task)
  elseif kind == 'ask' then
    local result = Ask().ask(queue, id, task, attempt, o)
    if has_prefix(result, 'granted') then let_go(own_keys, queue, trace) end
    if result == 'again' then
      back_to_pending(queue, id, task)
    elseif result ~= 'parked' then
      return result
    end
  end
  if kind ~= 'done' then call('HDEL', task, 'siding_attempt') end -- also a server of asynq may take it next
  leaves(queue, id)
  let_go(own_keys, queue, trace)
  return asks and 'parked' or 'settled'
end

local function settle_one(i, queue, id, attempt, lock, trace, kind, o)
  local ok, result = pcall(settle, queue, id, attempt, lock, trace, kind, o)
  if not ok then result = 'error ' .. text_of(result) end
  results[i] = result
  if has_prefix(result, 'granted') then
    for _, value in ipairs({digits(i), queue, id, attempt}) do granted[#granted + 1] = value end
  end
end

local function take_out(queue, ids)
  for _, id in ipairs(ids) do call('LREM', asynq(queue, 'active'), '-1', id) end -- from the tail: the oldest are there, and mostly end first
  call('ZREM', asynq(queue, 'lease'), unpack(ids))
end

-- Takes what has ended out of the sets of what is at work, and counts it.
local function clear()
  if #deleted > 0 then call('DEL', unpack(deleted)) end
  for queue, ids in pairs(ended) do try_queue(queue, take_out, queue, ids) end
  for queue, c in pairs(counts) do try_queue(queue, count, queue, c[1], c[2]) end
  deleted, ended, counts = {}, {}, {}
end

return to_pending, give_back, settle_one, clear
