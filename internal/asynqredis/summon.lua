-- Calls the waiter of a lock back, within the scripts that reserve the lock for it. Those
-- have other keys, so that this is not for a Cluster. bell.lua, waits.lua,
-- call.lua and attempt.lua come before it.
--
-- A waiter is 'siding-task:<queue, with %25 for % and %3A for a colon>:<task id>'.

-- Begins an attempt of a parked task: retry -> active. Returns {how it is called while it holds
-- its lock, the encoded task, how many are pending, its ticket}; nothing when it cannot begin here.
--   asynq    what the queue's keys begin with
--   ticket   the ticket under which it waits
--   name     the attempt's
--   ends     when its lease ends, Unix seconds
--   host     where it runs
local function begin(asynq, id, ticket, name, ends, host)
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

-- start is {attempt's name, two of the lock's own, queue, when its lease ends in Unix
-- seconds, where the attempt runs}, or nil.
--
-- Returns 'begun' and {the holder's name, encoded task, how many are pending, ticket} when it has
-- begun with start; 'called' when it is on its way, 'gone' when it does not wait, 'paused' when
-- its queue is; nothing when it has to be called by hand: it is still active, or out of reach
-- from here.
local function summon(waiter, ticket, start)
  local queue, id = string.match(waiter, '^siding%-task:([^:]*):(.*)$')
  if not queue then return 'gone' end
  queue = string.gsub(queue, '%%(%x%x)', function(code) return string.char(tonumber(code, 16)) end)
  local asynq, now = 'asynq:{' .. queue .. '}:', redis.call('TIME')
  if start and start[4] == queue then
    local begun = begin(asynq, id, ticket, start[1], start[5], start[6])
    if begun then return 'begun', begun end
  end
  local outcome = promote(asynq .. 't:' .. id, asynq .. 'retry', asynq .. 'pending', asynq .. 'paused',
    'siding:{' .. queue .. '}:bell', id, ticket, now[1] .. string.format('%06d', now[2]) .. '000')
  if outcome == 'called' or outcome == 'gone' or outcome == 'paused' then return outcome end
end
