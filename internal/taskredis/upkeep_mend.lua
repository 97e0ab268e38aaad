-- Goes through some of the tasks of queues, and repairs what was evicted, deleted, or written by a clock that has
-- stepped back since.
--
-- KEYS[1]  and those that follow: the retry sets of the queues
-- ARGV[1]  cursor  in the first of these; 0 for its start
-- ARGV[2]  round   how often all queues have been gone through before
-- ARGV[3...]  the queues
--
-- Returns {seen, cursor, mended, leased, troubles}:
--   seen      how many of the queues it has finished
--   cursor    where to go on, in the next one
--   mended    how many waiting tasks were not in their line, or were in one that was not in the ready set
--   leased    how many active tasks had no lease, by which asynq and upkeep find the tasks of dead servers
--   troubles  sentences for the log
--
-- Guarantees: it reads no message. A place in a line that is there stays as it is. Who goes through a whole queue meets
-- each task that was there all the time.

local retries, queues, cursor, round = {KEYS[1], unpack(KEYS, 2)}, {unpack(ARGV, 3)}, ARGV[1], tonumber(ARGV[2])

-- include beside
-- include common
-- include Permits
-- include locks
-- include notify
-- include upkeep

-- A write that takes no memory comes first: then Redis refuses none of the others for want of memory.
try('ZREM', retries[1], '')

local MOST, ACTIVE = 50, 500
local progress = {cursor = cursor, looked = 0, mended = 0, leased = 0} -- how far this has come

-- The lease of an attempt goes by its lock.
local function give_lease(task, queue, id)
  local have, ends = call('HMGET', task, 'siding_attempt', 'siding_lock'), in_seconds(PLAIN_LEASE)
  if have[1] and have[2] and have[2] ~= '' then
    local key = held_by(have[2], holder_of(have[1]))
    ends = key and leased(left_of(key)) or in_seconds(0)
  end
  progress.leased = progress.leased + call('ZADD', asynq(queue, 'lease'), ends, id)
end

-- Of many active tasks each round looks at another part.
local function look_at_active(active, queue)
  local parts = math.ceil(call('LLEN', active) / ACTIVE)
  if parts == 0 then return end
  local from = round % parts * ACTIVE
  local ids = call('LRANGE', active, from, from + ACTIVE - 1)
  local leases = call('ZMSCORE', asynq(queue, 'lease'), unpack(ids))
  for i, id in ipairs(ids) do
    if not leases[i] then safely(give_lease, task_of(queue, id), queue, id) end
  end
end

local function look_at_waiting(task, queue, retry, id, score)
  local have = call('HMGET', task, 'state', 'siding_until', 'siding_lock', 'siding_ticket', 'siding_deadline', 'siding_wait_ends')
  if not waits(have, score) then return end
  if mend(queue, id, have[3], have[4]) then progress.mended = progress.mended + 1 end
  if tonumber(score) > now_s + WAIT + 60 then keep_waiting(task, retry, id, end_of(have[5], have[6])) end
end

local function look_at_some(retry, queue)
  local some = call('ZSCAN', retry, progress.cursor, 'COUNT', MOST)
  progress.cursor, progress.looked = some[1], progress.looked + #some[2] / 2
  for i = 1, #some[2], 2 do
    safely(look_at_waiting, task_of(queue, some[2][i]), queue, retry, some[2][i], some[2][i + 1])
  end
end

local seen = 0
while seen < #queues and progress.looked < MOST do
  local queue, retry = queues[seen + 1], retries[seen + 1]
  progress.looked = progress.looked + 1
  if progress.cursor == '0' then safely(look_at_active, asynq(queue, 'active'), queue) end
  if safely(look_at_some, retry, queue) == 'failed' then progress.cursor = '0' end
  if progress.cursor == '0' then seen = seen + 1 end
end
return {seen, progress.cursor, progress.mended, progress.leased, troubles}
