-- Wakes parked tasks. This text comes before the scripts that do so, after notify.lua and
-- waits.lua.

-- Wakes a task: retry -> head of pending.
--   task, retry, pending, paused, list  keys of its queue
--   id      task id
--   ticket  the ticket under which it waits
--   now     Unix nanoseconds
-- Returns 'woken' when it is in pending, 'marked' when it is still active (it will be
-- pending as soon as it parks), 'paused' when its queue is paused, 'gone' when it does not wait
-- under this ticket; or the error, if the task's key cannot be read.
--
-- A task in the back-off after its own failure stays as it is. No task that is gone comes back. An
-- id is in one set at a time.
local function wake(task, retry, pending, paused, list, id, ticket, now)
  local found = redis.pcall('HMGET', task, 'state', 'siding_ticket', 'msg')
  if found.err then return found end
  local state = found[1]
  if state ~= 'active' and found[2] ~= ticket then return 'gone' end
  if redis.call('EXISTS', paused) == 1 then return 'paused' end

  if state == 'active' then
    redis.call('HSET', task, 'siding_woken', '1')
    return 'marked'
  end
  if state == 'retry' and waits(found[3]) and redis.call('ZREM', retry, id) == 1 then
    redis.call('RPUSH', pending, id)
    redis.call('HSET', task, 'state', 'pending', 'pending_since', now)
    notify(list, 1)
    return 'woken'
  end
  if state == 'pending' then
    -- The task's fallback time came first: the task is at the tail, which is the left end. A task
    -- deep in the list stays there: the search would take longer than it saves.
    if redis.call('LPOS', pending, id, 'MAXLEN', 1000) then
      redis.call('LREM', pending, 1, id)
      redis.call('RPUSH', pending, id)
    end
    notify(list, 1)
    return 'woken'
  end
  return 'gone'
end

