-- Looks at the leases of a queue that have ended: finds out which tasks have crashed.
--
-- KEYS[1]  leases of the queue
-- ARGV[1]  queue
-- ARGV[2]  skip   how many of them to pass, those that ended first
-- ARGV[3]  free   how many crashes of a guarded task use no retry
-- ARGV[4]  again  1 if free also holds for tasks without retries
--
-- Returns {now in us, left, more, found, crashed, troubles}:
--   left      how many of the leases that it looked at stay as they are, those of the crashed not counted
--   more      1 if there are leases behind those that it looked at
--   found     1 if a guarded task has crashed that a step puts back into its line; an idle server was woken
--   crashed   four values for each task that is to be ended: id, state, attempt, lease
--   troubles  sentences for the log
--
-- Guarantees: it reads no message. An attempt that holds its lock is not called crashed, as its server may trust the
-- lock.

local lease, queue, skip, free_crashes, no_retries_too = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

-- include beside
-- include common
-- include Permits
-- include locks
-- include notify
-- include upkeep

local MOST_LOOKS, MOST_CRASHED = 100, 10
local GRACE = 30 -- s: for so long after its lease has ended an unguarded task may still be at work, as in asynq
local active = asynq(queue, 'active')
local left, crashed, found = 0, {}, {}

-- Whether a task that is among the active is where its state says, too: a script failed between two writes.
local function elsewhere(task, id, state)
  if not state then return call('EXISTS', task) == 0 end -- deleted: it is nowhere
  if state == 'pending' then return call('LPOS', asynq(queue, state), id) end
  return call('ZSCORE', asynq(queue, state), id)
end

-- Returns what has become of the lease of a task: 'left', 'gone', or 'crashed'.
local function judge(task, id, ends)
  local have = call('HMGET', task, 'state', 'siding_attempt', 'siding_lock', 'siding_crashes', 'siding_began', 'siding_resource')
  local state, attempt, lock, resource = have[1], have[2] or '', have[3] or '', have[6] or ''
  local guarded = attempt ~= '' and (lock ~= '' or resource ~= '')
  if state ~= 'active' and elsewhere(task, id, state) then
    call('LREM', active, 0, id)
    call('ZREM', lease, id)
    return 'gone'
  end
  if guarded and held_by(lock, holder_of(attempt)) then return 'left' end
  local free_crash = guarded and state == 'active' and tonumber(have[4] or '0') < free_crashes
  if free_crash and (no_retries_too or have[5] ~= attempt) then
    found[1] = id
    return 'left'
  end
  -- Its server may live, and have lost the lock only: it then says what becomes of the task.
  if (free_crash or lock == '' or attempt == '') and tonumber(ends) > now_s - GRACE then return 'left' end
  local n = #crashed
  crashed[n + 1], crashed[n + 2], crashed[n + 3], crashed[n + 4] = id, state or '', attempt, ends
  return 'crashed'
end

local rows = call('ZRANGEBYSCORE', lease, '-inf', in_seconds(0), 'WITHSCORES', 'LIMIT', skip, MOST_LOOKS)
local more = #rows == 2 * MOST_LOOKS and 1 or 0
for i = 1, #rows, 2 do
  local is = safely(judge, task_of(queue, rows[i]), rows[i], rows[i + 1])
  if is == 'left' or is == 'failed' then left = left + 1 end
  if #crashed == 4 * MOST_CRASHED then
    more = 1
    break
  end
end
if found[1] then wake(queue) end
return {now, left, more, found[1] and 1 or 0, crashed, troubles}
