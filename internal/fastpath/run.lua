-- Parks the tasks behind one that was parked, if their locks are busy, too. This text is part of
-- dequeue.lua, and reads the KEYS and ARGV of that. busy.lua comes before it.
--
-- Thousands of tasks of one resource may follow each other. What is the same for all of them is read
-- once, and what can be written by one command is.

-- Returns whether holder_of would name the task as a holder. known has its answers by kind.
local function has_name(known, kind, msg, id)
  if known[kind] == nil then known[kind] = #(holder_of(msg, '', ARGV[5]) or string.rep(' ', 201)) end
  return known[kind] + #id <= 200 and not string.find(id, '%z')
end

-- Parks tasks from the head of pending, in order, up to the first that park_busy has to decide on, or
-- that goes to its handler. Such a task, and those behind it, stay where they are.
--   most    how many are parked at most
--   parked  gets what park_busy returns, with the last five repeated for each task of the resource
-- Returns how many it has parked. An error before the first write changes no task.
function park_run(most, parked)
  local with, ids, t = {ARGV[9], ARGV[10], ARGV[11], ARGV[12]}, redis.call('LRANGE', KEYS[1], -most, -1), redis.call('TIME')
  local us = t[1] * 1000000 + t[2]
  local now = math.floor(us / 1000)
  local runs, names, retry, count = {}, {}, {}, 0
  for i = #ids, 1, -1 do
    local id = ids[i]
    local task, waiter = ARGV[2] .. id, ARGV[4] .. id
    local kept = redis.call('HMGET', task, 'msg', 'siding_ticket', 'siding_parked')
    local found = kept[1] and (kept[2] or '') == '' and parts(kept[1])
    local lock = found and busy_locks[found.resource or '']
    if not lock or lock[5] == waiter or found.priority > 0 or not may_park(found, found.resource, now)
      or not has_name(names, found.kind, kept[1], id) then break end
    count = count + 1
    local wait = fall_back(id, found, (t[2] / 1000000 + count * 0.618034) % 1, now)
    retry[2 * count - 1], retry[2 * count] = math.floor((now + wait) / 1000), id
    local run = runs[found.resource]
    if not run then
      run = {waiters = {}, tasks = {}}
      runs[found.resource] = run
    end
    run.waiters[#run.waiters + 1] = waiter
    run.tasks[#run.tasks + 1] = {id, task, found, (tonumber(kept[3]) or 0) + 1}
  end
  if count == 0 then return 0 end

  for resource, run in pairs(runs) do
    local value, left, last, reason = unpack(busy_locks[resource])
    local positions, tickets = join_all(with, resource, run.waiters)
    local said, lock = {resource, value, left, last}, with[1] .. resource
    for i, of in ipairs(run.tasks) do
      local id, task, found, times = unpack(of)
      redis.call('HSET', task, 'msg', with_reason(found, reason .. string.format(POSITION, positions[i])), 'state', 'retry',
        'siding_ticket', tickets[i], 'siding_lock', lock, 'siding_parked', times)
      redis.call('HDEL', task, 'pending_since', 'siding_attempt', 'siding_came', 'siding_woken')
      local n = #said
      said[n + 1], said[n + 2], said[n + 3], said[n + 4], said[n + 5] = id, found.kind, times, positions[i], tickets[i]
    end
    parked[#parked + 1] = said
  end
  redis.call('ZADD', KEYS[6], unpack(retry))
  redis.call('LTRIM', KEYS[1], 0, -count - 1)
  return count
end

