-- Takes the next task of a queue, as asynq's own script does, and stamps it. attempt.lua
-- comes before it.
--
-- KEYS[1]  asynq:{queue}:pending
-- KEYS[2]  asynq:{queue}:paused
-- KEYS[3]  asynq:{queue}:active
-- KEYS[4]  asynq:{queue}:lease
-- KEYS[5]  siding:{queue}:notify
-- KEYS[6]  asynq:{queue}:retry
-- KEYS[7]  siding:{queue}:contended
-- ARGV[1]  when the lease ends, Unix seconds
-- ARGV[2]  prefix of the keys of the queue's tasks
-- ARGV[3]  the attempt's name
-- Only if locking.lua comes before it:
-- ARGV[4]  prefix of the names of the queue's waiters
-- ARGV[5]  the host that runs the attempt
-- ARGV[6]  after how long a waiter comes by itself at the earliest, ms
-- ARGV[7]  and at the latest after so much more, ms
-- ARGV[8]  for how long after its fallback time a task stays unique, ms
-- ARGV[9]  to ARGV[12]: with, see lock.lua
-- ARGV[13] patterns of the resources that have limits, see locking.lua; or ''
-- ARGV[14] the kinds that have a policy, each between line breaks; or ''
--
-- Returns nil when it finds no task; else {task, how many are left, those that were parked
-- instead, the task's ticket in us}, followed by what lock_or_park returns. The ticket is the one
-- under which the task has waited. A task that has not waited gets the time of this call. The task
-- is nil if some were parked and none was taken. Those are what park_busy and park_run return.
--
-- Guarantees: the task that is taken is in the same state as after asynq's script. Its hash also
-- names its latest attempt, and keeps no mark of an earlier parking. If the task has waited, the
-- hash also has the ticket, the time since the reservation and its nonce, which taken.lua reads. The
-- notify list of an empty queue is cleared.

if redis.call('EXISTS', KEYS[2]) == 1 then return nil end
-- At most ten tasks are parked one by one, and fewer than 300 in all. That takes a few ms.
local parked, single, count = {}, 0, 0
while single < 10 and count < 200 do
  local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
  if not id then break end
  local task = ARGV[2] .. id
  local found = redis.call('HMGET', task, 'msg', 'siding_ticket')
  local msg, ticket = found[1], found[2] or ''
  local ok, grant, busy
  if msg and lock_or_park then
    -- An error must not hide a task that has been taken.
    ok, grant, busy = pcall(lock_or_park, task, id, msg, ticket)
  end
  if ok and busy then
    parked[#parked + 1] = busy
    single, count = single + 1, count + 1
    local many = single > 1 and 10 -- two in a row: more may follow
    while many do
      local parks, more = pcall(park_run, many, parked)
      count = count + (parks and more or 0)
      many = more == many and count < 200 and 100
    end
  else
    grant = ok and grant or {}
    stamp(task, KEYS[4], id, ARGV[3], ARGV[1], ticket ~= '' and table.concat({ARGV[3], ticket, grant[4] or '-1', grant[5] or ''}, ' '))
    if not msg then break end
    local left = redis.call('LLEN', KEYS[1])
    if left == 0 then redis.call('DEL', KEYS[5]) end
    if ticket == '' then
      ticket = grant[3]
      if not ticket then
        local now = redis.call('TIME')
        ticket = now[1] .. string.format('%06d', now[2])
      end
    end
    return {msg, left, parked, ticket, unpack(grant)}
  end
end
local left = redis.call('LLEN', KEYS[1])
if left == 0 then redis.call('DEL', KEYS[5]) end
if count == 0 then return nil end
return {false, left, parked}
