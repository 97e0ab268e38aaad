-- Ends an attempt that has crashed: its task is retried or archived, as by asynq's recoverer.
--
-- KEYS[1]  task
-- ARGV[1]  queue
-- ARGV[2]  id
-- ARGV[3]  state of the task when it was found to have crashed
-- ARGV[4]  attempt, likewise
-- ARGV[5]  lease, likewise
-- ARGV[6]  kind         retry or archived
-- ARGV[7]  message      the task to keep
-- ARGV[8]  after        in how many us it comes again
-- ARGV[9]  counts       1 if it counts as a failure in asynq's statistics
-- ARGV[10] today        asynq's day for them
-- ARGV[11] stats_until  when they expire, Unix seconds
-- ARGV[12] hold         1 if it keeps its place, and those behind it wait; see hold.lua
-- ARGV[13] unique       its key of uniqueness, '' for none
--
-- Returns 1 if it has ended it, else 0.
--
-- Guarantee: nothing changes if the attempt was renewed or ended since it was found, or if the task is at work again.

local task, queue, id, state, attempt, ends = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local kind, message, after, counts, today, stats_until = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]

-- include beside
-- include common
-- include asynq
-- include Permits
-- include locks
-- include Hold

local lease = asynq(queue, 'lease')
local have = call('HMGET', task, 'state', 'siding_attempt', 'siding_lock', 'siding_deadline')
local score = call('ZSCORE', lease, id)
if (have[1] or '') ~= state or (have[2] or '') ~= attempt or not score or tonumber(score) ~= tonumber(ends) then return 0 end
if held_by(have[3] or '', holder_of(attempt)) then return 0 end

-- A write that takes no memory comes first: then Redis refuses none of the others for want of memory.
local held = ARGV[12] == '1' and have[3] and have[3] ~= '' and lock_of(have[3])
call('HDEL', task, 'siding_attempt', 'siding_until', 'siding_text')
if not held then call('HDEL', task, 'siding_lock', 'siding_ticket') end
if kind == 'archived' then
  if held then Hold().hold_line(queue, id, task, held, nil) end
  archive(queue, id, ARGV[13])
elseif held then
  local ends = until_of(end_of(have[4], nil))
  Hold().hold_line(queue, id, task, held, now + after)
  call('HSET', task, 'siding_until', ends)
  call('ZADD', asynq(queue, kind), ends, id)
else
  call('ZADD', asynq(queue, kind), digits(math.floor((now + after) / 1000000)), id)
end
call('HSET', task, 'msg', message, 'state', kind)
call('LREM', asynq(queue, 'active'), 0, id)
call('ZREM', lease, id)
if counts == '1' then count(queue, 1, 1) end
return 1
