-- What the scripts of upkeep share.
--
-- Comes after common.lua and notify.lua.

-- Does some work on a key. If that fails, nothing else does. Works keep what they find in tables: in the Lua of the
-- Redis in memory, a failure cuts functions off from the local variables around them.
local function safely(work, key, ...)
  local ok, result = pcall(work, key, ...)
  if ok then return result end
  if #troubles < 10 then
    troubles[#troubles + 1] = key .. ': ' .. text_of(result)
  end
  return 'failed'
end

-- Wakes an idle server of a queue. Returns 'busy' if nobody has taken the last wake-up: then no server is idle.
local function wake(queue)
  if call('EXISTS', asynq(queue, 'paused')) == 1 then return 'paused' end
  local list = siding(queue, 'notify')
  local before = call('EXISTS', list)
  notify(list, 1)
  return before == 1 and 'busy' or 'woken'
end

-- Whether a task with these fields (state, siding_until, siding_lock, siding_ticket) waits for a lock, and has not
-- failed since: then its score in the retry set would be another one.
local function waits(have, score)
  return have[1] == 'retry' and have[2] and tonumber(have[2]) == tonumber(score) and have[3] and have[3] ~= ''
    and tonumber(have[4] or '')
end

local sound = {} -- lines, by key, whose lock knows them and is in the ready set

-- Sees to it that a waiting task is in its lines, that their locks know them, and that the locks are in the ready set.
-- Returns whether one of these was lost.
local function mend_line(queue, id, lock, ticket)
  local line, lines, ready = siding(queue, 'line:' .. lock), lines_of(lock), siding(queue, 'ready')
  local added = ours('ZADD', line, 'NX', ticket, id) == 1
  sound[line] = sound[line] or ours('ZSCORE', lines, queue) and ours('ZSCORE', ready, lock)
  if sound[line] and not added then return false end
  ours('ZADD', lines, 'LT', ticket, queue)
  ours('ZADD', ready, 'LT', digits(now), lock)
  return true
end
local function mend(queue, id, locks, ticket)
  local lost = false
  for lock in each(locks) do lost = mend_line(queue, id, lock, ticket) or lost end
  return lost
end

-- Writes down until when a task waits, by when it may wait no longer; see until_of.
local function keep_waiting(task, retry, id, ends)
  ends = until_of(ends)
  call('ZADD', retry, ends, id)
  call('HSET', task, 'siding_until', ends)
  keep_unique(task, call('HGET', task, 'unique_key'), id, ends)
end

return safely, wake, waits, mend, keep_waiting
