-- Has a held line go on, for an operator.
--
-- KEYS[1]  task that holds the line
-- ARGV[1]  queue
-- ARGV[2]  id
-- ARGV[3]  what     'retry' to have the task run now, before those behind it; 'skip' to give it up: it is archived, or stays so
-- ARGV[4]  message  skip: the task to keep, if its message is still ARGV[5]
-- ARGV[5]  before
-- ARGV[6]  unique   its key of uniqueness, '' for none
--
-- Returns 1; 0 if the task holds no line, is about to run, or has another message by now: then nothing has changed.
--
-- Guarantee: the task is in the set of its new state before it leaves that of the old one. Run twice it does and
-- returns what one run does, unless the task has begun in between.

-- include beside
-- include common
-- include notify
local today, stats_until -- it counts nothing
-- include asynq

local task, queue, id, what, message, before = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local have = call('HMGET', task, 'state', 'siding_held', 'siding_lock', 'siding_deadline', 'msg')
local state, held, locks = have[1], have[2], have[3]
if what == 'skip' and state == 'archived' and message ~= before and have[5] == message then return 1 end -- an earlier copy has done it
if not held or state ~= 'retry' and not (state == 'archived' and held == 'stop') then return 0 end

if what == 'retry' then
  local ends = until_of(end_of(have[4], nil))
  call('ZADD', asynq(queue, 'retry'), ends, id)
  call('HSET', task, 'state', 'retry', 'siding_until', ends, 'siding_held', digits(now))
  for lock in each(locks) do call('ZADD', siding(queue, 'held'), digits(now), lock) end
  if state == 'archived' then call('ZREM', asynq(queue, 'archived'), id) end
else
  if have[5] ~= before then return 0 end
  if state == 'retry' then archive(queue, id, ARGV[6]) end
  call('HSET', task, 'state', 'archived', 'msg', message)
  call('HDEL', task, 'siding_held', 'siding_until', 'siding_lock', 'siding_ticket', 'siding_text') -- whoever looks at the line drops it
  for lock in each(locks) do call('ZREM', siding(queue, 'held'), lock) end
  call('ZREM', asynq(queue, 'retry'), id)
end
for lock in each(locks) do ours('ZADD', siding(queue, 'ready'), digits(now), lock) end
notify(siding(queue, 'notify'), 1)
return 1
