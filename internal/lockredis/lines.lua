-- Lines: where tasks wait for a lock, and when somebody should look at them; and who is next.
--
--   siding:{<queue>}:line:<lock>   the tasks of a queue that wait for the lock: id by ticket
--   siding:{<queue>}:ready         the locks that have such a line, by when somebody should look, us
--   {<lock>}:lines                 the queues that have a line for it, by the ticket of its head
--   {<lock>}:freed                 when it was freed while tasks waited, us; and the trace of who did so, if known
--
-- Comes after queue.lua, and after slots: the hash of queues by when a server of theirs had a free slot last, us.

local OFFER = 50000            -- us: for so long a freed lock is offered to the oldest line alone
local SEEN = 2000000           -- us: so long ago a queue had a free slot if it is served; an idle server says so each second
local FREED_KEPT = 3600000     -- ms
local GONE = 'gone'            -- in place of the trace, if nobody has freed the lock: it was found free

-- Has the lock looked at for a line at a time, also if that was due before: it was not the line's turn then.
local function mark(lock, queue, due)
  ours('ZADD', siding(queue, 'ready'), digits(due), lock)
  if due < now + RECHECK then marked[queue] = true end -- an idle server looks each second
end

-- Returns the queue whose line of tasks has the oldest head, and the ticket of that.
local function first_line(lock)
  local head = ours('ZRANGE', lines_of(lock), 0, 0, 'WITHSCORES')
  return head[1], tonumber(head[2] or math.huge)
end

-- Whether a server of a queue has had a free slot just now. A time ahead of the clock says nothing: that has stepped back since.
local function is_served(queue) return math.abs(now - tonumber(call('HGET', slots, queue) or '0')) < SEEN end

-- Offers a lock that may be taken from a time on, us, to lines: all of them, by the tickets of their heads. The line with the
-- oldest head may have it at once; the others a moment later, if a server of that line's queue has a slot for it. Of all
-- that are due the one is first that was taken longest ago, as its fence tells: so resources take turns, also if many
-- attempts begin and end at the same time. queue is that of the attempt that frees the lock, if any.
local function offer(lock, lines, due, queue)
  if due <= now then
    due = last_fence(lock)
    if due == 0 or due > now then due = now end
  end
  local oldest, others = lines[1], due
  if #lines > 2 then
    if oldest == queue or is_served(oldest) then others = math.max(due, now) + OFFER end
  end
  mark(lock, oldest, due)
  for i = 3, #lines, 2 do mark(lock, lines[i], others) end
end

-- Gives a lock that was freed by a key to those who wait for it: it is reserved for a goroutine, or offered to the lines. waiting
-- is 2 if there are both.
local function hand_on(key, by, queue, waiting)
  local lock = lock_of(key)
  local lines, waiter = ours('ZRANGE', lines_of(lock), 0, -1, 'WITHSCORES'), nil
  if waiting == 2 or #lines == 0 then waiter = Queue().first_waiter(lock) end
  local open, due, permits, _ = key, nil, nil, nil
  -- Whoever frees a permit may not know the rule. Then the first of each kind is told to ask, as that one knows it.
  if rule_of(lock) or waiter and key == lock then open, _, due, permits = Queue().reserve(lock, tonumber(lines[2] or math.huge), by) end
  if #lines > 0 then
    if open then
      local trace = string.match(by, '%-trace%-(.+)$')
      call('SET', beside(lock, 'freed'), trace and digits(now) .. ' ' .. trace or digits(now), 'PX', FREED_KEPT)
    end
    offer(lock, lines, due or now, queue)
  end
  if waiter and (open or permits and permits.from) then Queue().tell_first(lock) end
end

-- When a lock was freed while tasks waited, and by whose trace, '' if that is not known; 0 if nobody has.
local function freed_at(lock, command)
  local freed = try(command or 'GET', beside(lock, 'freed'))
  local at, trace = string.match(type(freed) == 'string' and freed or '', '^(%d+) ?(.*)$')
  return tonumber(at or 0), trace or ''
end

-- The same for a task of a line that takes the lock; before is the fence of the last holder. It is 0 if that one has gone
-- without freeing it.
local function freed_for(lock, before)
  local at, trace = freed_at(lock, 'GETDEL')
  if at <= before or trace == GONE then return '0', '' end
  return digits(at), trace
end

-- Whether a goroutine with this ticket may take a lock that has room. If not, it is offered to older lines alone: the
-- second is until when, us. If its last holder has gone without freeing it, the lines hear of it now.
local function may_take(lock, ticket)
  local lines = ours('ZRANGE', lines_of(lock), 0, -1, 'WITHSCORES')
  if #lines == 0 or tonumber(lines[2]) >= ticket then return true end
  local at, trace = freed_at(lock)
  if at == 0 or at > now or trace ~= GONE and at <= last_fence(lock) then -- or the clock has stepped back
    at = now
    call('SET', beside(lock, 'freed'), digits(now) .. ' ' .. GONE, 'PX', FREED_KEPT)
    offer(lock, lines, now)
  end
  if at + OFFER > now then return false, at + OFFER end
  call('DEL', beside(lock, 'freed'))
  return true
end

-- Has a task wait in the lines of the locks that it needs, at its ticket. The sets of its old state are left to the caller.
--   due  when the lines should be looked at, at the latest
local function wait_in_line(queue, id, locks, ticket, ends, due)
  call('ZADD', asynq(queue, 'retry'), ends, id)
  local task = task_of(queue, id)
  keep_unique(task, call('HGET', task, 'unique_key'), id, ends)
  for lock in each(locks) do
    ours('ZADD', siding(queue, 'line:' .. lock), ticket, id)
    ours('ZADD', lines_of(lock), 'LT', ticket, queue)
    ours('ZADD', siding(queue, 'ready'), 'LT', digits(due), lock)
  end
  call('HSET', task, 'state', 'retry', 'siding_lock', locks, 'siding_until', ends) -- last: it says that the task does
end

return OFFER, is_served, first_line, hand_on, freed_for, may_take, wait_in_line
