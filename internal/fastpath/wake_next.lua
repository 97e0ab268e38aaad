-- Wakes the next waiter of a lock. This text is part of the scripts that reserve the lock for the
-- waiter. A task has other keys than a lock, so this is not for a Cluster. notify.lua, waits.lua,
-- wake.lua and attempt.lua come before it.
--
-- A waiter is 'siding-task:<queue, with %25 for % and %3A for a colon>:<task id>'.

-- Starts an attempt of a parked task: retry -> active. Returns {the holder's name, the encoded
-- task, how many are pending, its ticket}; nothing when it cannot start here.
--   asynq    what the queue's keys begin with
--   ticket   the ticket under which it waits
--   name     the attempt's
--   ends     when its lease ends, Unix seconds
--   host     where it runs
local function start_attempt(asynq, id, ticket, name, ends, host)
  local task = asynq .. 't:' .. id
  local found = redis.pcall('HMGET', task, 'state', 'siding_ticket', 'msg')
  if found.err or found[1] ~= 'retry' or found[2] ~= ticket or not waits(found[3]) then return end
  local holder = holder_of(found[3], id, host)
  if not holder then return end
  if redis.call('EXISTS', asynq .. 'paused') == 1 or redis.call('ZREM', asynq .. 'retry', id) == 0 then return end
  redis.call('LPUSH', asynq .. 'active', id)
  stamp(task, asynq .. 'lease', id, name, ends)
  return {holder, found[3], redis.call('LLEN', asynq .. 'pending'), ticket}
end

-- Wakes a waiter. start is {attempt's name, two that are for the lock, queue, when the attempt's
-- lease ends in Unix seconds, the host that runs it}, or nil. If again is true, wakes nobody and
-- returns what an earlier call with this start returned, if the attempt that it started is still active.
--
-- Returns 'started' and {the holder's name, encoded task, how many are pending, ticket} when it has
-- started an attempt; 'woken' when the task is pending, 'gone' when it does not wait, 'paused' when
-- its queue is paused; nothing when the client has to wake the task, which is still active or
-- cannot be read.
local function wake_waiter(waiter, ticket, start, again)
  local queue, id = string.match(waiter, '^siding%-task:([^:]*):(.*)$')
  if not queue then return 'gone' end
  queue = string.gsub(queue, '%%(%x%x)', function(code) return string.char(tonumber(code, 16)) end)
  local asynq = 'asynq:{' .. queue .. '}:'
  if again then
    local found = redis.pcall('HMGET', asynq .. 't:' .. id, 'state', 'siding_attempt', 'msg')
    if found.err or found[1] ~= 'active' or found[2] ~= start[1] then return end
    return 'started', {holder_of(found[3], id, start[6]), found[3], redis.call('LLEN', asynq .. 'pending'), ticket}
  end
  if start and start[4] == queue then
    local started = start_attempt(asynq, id, ticket, start[1], start[5], start[6])
    if started then return 'started', started end
  end
  local now = redis.call('TIME')
  local outcome = wake(asynq .. 't:' .. id, asynq .. 'retry', asynq .. 'pending', asynq .. 'paused',
    'siding:{' .. queue .. '}:notify', id, ticket, now[1] .. string.format('%06d', now[2]) .. '000')
  if outcome == 'woken' or outcome == 'gone' or outcome == 'paused' then return outcome end
end
