-- What the scripts that call a parked task back have in common; it is put in front of
-- each of them, after bell.lua and waits.lua.

-- Calls a task back: retry -> head of pending.
--   task, retry, pending, paused, bell  keys of its queue
--   id      task id
--   ticket  the ticket under which it waits
--   now     Unix nanoseconds
-- Returns 'called' when it is on its way, 'noted' when it is still active (it will be
-- pending as soon as it parks), 'paused' when its queue is, 'gone' when it does not wait
-- under this ticket; or the error, where the task's key cannot be read.
--
-- A task in the back-off after its own failure is not touched, nor one that is gone;
-- none is created; an id is in one set at a time.
local function promote(task, retry, pending, paused, bell, id, ticket, now)
  local found = redis.pcall('HMGET', task, 'state', 'siding_ticket', 'msg')
  if found.err then return found end
  local state = found[1]
  if state ~= 'active' and found[2] ~= ticket then return 'gone' end
  if redis.call('EXISTS', paused) == 1 then return 'paused' end

  if state == 'active' then
    redis.call('HSET', task, 'siding_called', '1')
    return 'noted'
  end
  if state == 'retry' and waits(found[3]) and redis.call('ZREM', retry, id) == 1 then
    redis.call('RPUSH', pending, id)
    redis.call('HSET', task, 'state', 'pending', 'pending_since', now)
    ring(bell, 1)
    return 'called'
  end
  if state == 'pending' then
    -- Its own timer was first: it is at the tail, which is the left end. Deep in the list it
    -- is left where it is: the search would take longer than it saves.
    if redis.call('LPOS', pending, id, 'MAXLEN', 1000) then
      redis.call('LREM', pending, 1, id)
      redis.call('RPUSH', pending, id)
    end
    ring(bell, 1)
    return 'called'
  end
  return 'gone'
end

