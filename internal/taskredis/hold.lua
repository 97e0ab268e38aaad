-- Held lines: a task that has failed keeps its place at the head, and those behind it wait until it has run again.
--
--   siding:{<queue>}:held   the locks whose line in the queue is held, by when it goes on, us; +inf for one that an operator has
--                           to set going, as its first task has failed for good
--
-- The task says so itself: its siding_held is that time, or 'stop'. Comes after common.lua.

local LOOK = 10000000 -- us: so often a held line is looked at, as asynq's tools may delete or archive its task

-- Says until when a line is held, as its head has it.
local function list_line(queue, lock, held) call('ZADD', siding(queue, 'held'), held == 'stop' and '+inf' or held, lock) end

-- Puts a task back at its place, and holds the line there, or the lines of all the locks that it needs. The sets of asynq are
-- left to the caller.
--   due  when the line goes on, us; nil to stop it
local function hold_line(queue, id, task, locks, due)
  local ticket = call('HGET', task, 'siding_ticket') or digits(now)
  local held = due and digits(due) or 'stop'
  call('HSET', task, 'siding_held', held, 'siding_lock', locks, 'siding_ticket', ticket, 'siding_begun_at', ticket)
  for lock in each(locks) do
    list_line(queue, lock, held)
    ours('ZADD', siding(queue, 'line:' .. lock), ticket, id)
    ours('ZADD', lines_of(lock), 'LT', ticket, queue)
    -- It may not be the first: one with a higher priority is not to wait for it.
    ours('ZADD', siding(queue, 'ready'), 'LT', digits(math.min(due or math.huge, now + LOOK)), lock)
  end
end

-- Ends the hold of a task's lines. Those behind it may go on now, as it may be about to end without its locks.
local function release_line(queue, task, locks)
  call('HDEL', task, 'siding_held')
  for lock in each(locks) do
    call('ZREM', siding(queue, 'held'), lock)
    if ours('ZSCORE', siding(queue, 'ready'), lock) then ours('ZADD', siding(queue, 'ready'), 'LT', digits(now), lock) end
  end
end

-- Until when the head of a line holds it, us; nil if it does not, or not any more.
--   waits  whether it waits in the retry set
local function holds_until(held, state, waits)
  if held == 'stop' then return (state == 'archived' or state == 'pending') and math.huge or nil end
  if tonumber(held) <= now then return nil end
  if state == 'pending' then return math.huge end -- somebody has it run, and it is about to come
  return waits and tonumber(held) or nil
end

return LOOK, list_line, hold_line, release_line, holds_until
