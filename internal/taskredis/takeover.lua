-- Puts tasks into pending that waited for locks in the way of an earlier release.
--
-- KEYS[1]  retry    the retry set of their queue
-- KEYS[2]  pending  its pending tasks
-- ARGV[1]  queue
-- ARGV[2...]  ids, in the order in which the tasks came
--
-- Returns how many it has moved.
--
-- Guarantee: a task that does not wait in that way stays as it is. One that comes to the same lock again has its old place.

-- include beside
-- include common

local retry, pending, queue, ids = KEYS[1], KEYS[2], ARGV[1], {unpack(ARGV, 2)}
local moved = 0
for _, id in ipairs(ids) do
  local task = task_of(queue, id)
  local have = try('HMGET', task, 'state', 'siding_ticket', 'siding_until')
  if not have.err and have[1] == 'retry' and have[2] and not have[3] then
    call('LPUSH', pending, id)
    call('HSET', task, 'state', 'pending', 'pending_since', digits(now) .. '000')
    call('ZREM', retry, id)
    moved = moved + 1
  end
end
return moved
