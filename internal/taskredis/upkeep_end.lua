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
-- ARGV[8]  at           when it comes again, Unix seconds
-- ARGV[9]  counts       1 if it counts as a failure in asynq's statistics
-- ARGV[10] today        asynq's day for them
-- ARGV[11] stats_until  when they expire, Unix seconds
--
-- Returns 1 if it has ended it, else 0.
--
-- Guarantee: nothing changes if the attempt was renewed or ended since it was found, or if the task is at work again.

local task, queue, id, state, attempt, ends = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local kind, message, at, counts, today, stats_until = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]

-- include beside
-- include common
-- include asynq
-- include Permits
-- include locks

local lease = asynq(queue, 'lease')
local have = call('HMGET', task, 'state', 'siding_attempt', 'siding_lock')
local score = call('ZSCORE', lease, id)
if (have[1] or '') ~= state or (have[2] or '') ~= attempt or not score or tonumber(score) ~= tonumber(ends) then return 0 end
if held_by(have[3] or '', attempt) then return 0 end

-- A write that takes no memory comes first: then Redis refuses none of the others for want of memory.
call('HDEL', task, 'siding_attempt', 'siding_lock', 'siding_ticket', 'siding_until', 'siding_text')
if kind == 'archived' then archive(queue, id) else call('ZADD', asynq(queue, kind), at, id) end
call('HSET', task, 'msg', message, 'state', kind)
call('LREM', asynq(queue, 'active'), 0, id)
call('ZREM', lease, id)
if counts == '1' then count(queue, 1, 1) end
return 1
