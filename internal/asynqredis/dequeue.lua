-- Takes the next task of a queue, as asynq's own script does, and stamps it. attempt.lua
-- comes before it.
--
-- KEYS[1]  asynq:{queue}:pending
-- KEYS[2]  asynq:{queue}:paused
-- KEYS[3]  asynq:{queue}:active
-- KEYS[4]  asynq:{queue}:lease
-- KEYS[5]  siding:{queue}:bell
-- KEYS[6]  asynq:{queue}:retry
-- KEYS[7]  siding:{queue}:contended
-- ARGV[1]  when the lease ends, Unix seconds
-- ARGV[2]  what the keys of the queue's tasks begin with
-- ARGV[3]  the attempt's name
-- Where ahead.lua comes before it; else there are none of these:
-- ARGV[4]  what the names of the queue's waiters begin with
-- ARGV[5]  where the attempt runs
-- ARGV[6]  after how long a waiter comes by itself at the earliest, ms
-- ARGV[7]  and at the latest after so much more, ms
-- ARGV[8]  how much longer than its timer a task's uniqueness lasts, ms
-- ARGV[9]  and those that follow: what take_ahead wants to know
--
-- Returns nil when there is no task to be had; else {task, how many are left, those that were
-- put aside instead, the task's ticket in us}, and after these what ahead returns. The ticket is
-- the one under which it has waited; of one that has not it is the time of this call, if it
-- may wait from now on. The task is nil where up to ten were put aside and none was taken;
-- each of those is what refuse returns.
--
-- Guarantees: the task that is taken is in the same state as after asynq's script; besides,
-- its hash names its latest attempt, and no mark of an earlier parking is left in it. A bell
-- that rings for nothing is silenced.

if redis.call('EXISTS', KEYS[2]) == 1 then return nil end
local refused = {}
while #refused < 10 do
  local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
  if not id then break end
  local task = ARGV[2] .. id
  local found = redis.call('HMGET', task, 'msg', 'siding_ticket')
  local msg, ticket = found[1], found[2] or ''
  local ok, grant, refusal
  if msg and ahead then
    -- An error must not keep back a task that has been taken.
    ok, grant, refusal = pcall(ahead, task, id, msg, ticket)
  end
  if ok and refusal then
    refused[#refused + 1] = refusal
  else
    stamp(task, KEYS[4], id, ARGV[3], ARGV[1])
    if not msg then break end
    local left = redis.call('LLEN', KEYS[1])
    if left == 0 then redis.call('DEL', KEYS[5]) end
    grant = ok and grant or {}
    if ticket == '' then
      ticket = grant[3]
      if not ticket then
        local now = redis.call('TIME')
        ticket = now[1] .. string.format('%06d', now[2])
      end
    end
    return {msg, left, refused, ticket, unpack(grant)}
  end
end
local left = redis.call('LLEN', KEYS[1])
if left == 0 then redis.call('DEL', KEYS[5]) end
if #refused == 0 then return nil end
return {false, left, refused}
