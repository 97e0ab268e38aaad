-- Looks at queues: forwards the tasks whose time has come, and says which queues need a server.
--
-- KEYS[1]  elected      the session of the server that looks after the queues
-- ARGV[1]  session      of the server that asks
-- ARGV[2]  elected_for  for how many ms it stays elected
-- ARGV[3]  far          s: how far ahead a lock or a lease may be due; 0 to look for none that is further
-- ARGV[4]  clean        how many completed tasks that have expired to delete of each queue at most; 0 for none
-- ARGV[5]  most         how many tasks to move, delete or cut of all queues, give or take some
-- ARGV[6...]  the queues
--
-- Returns {0} if another server is elected, else {1, now in us, next, again, found, ended, troubles}:
--   next      when the next task, lock or lease of these queues is due, us; -1 for never
--   again     the queues where something is or may be left to do, those first that were not looked at
--   found     the queues with something for a server; an idle server of each was woken
--   ended     the queues with a lease that has ended
--   troubles  sentences for the log
--
-- Guarantees: a lock is never given less time than its attempt may trust it for. A task leaves the set of its old state after it is in that of the new one. What cannot be read is set
-- aside for hours, and stops no other task. Two servers that look do no harm.

local session, elected_for, far, clean, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local queues = {unpack(ARGV, 6)}

local ELECTED_FOR = 3000 -- ms: for so long a server stays elected, unless it resigns

-- include beside
-- include common
-- include Permits
-- include locks
-- include notify
-- include upkeep

local elected = try('GET', KEYS[1])
if type(elected) == 'string' and elected ~= session then
  -- By a clock that has stepped back since, a server that has died would stay elected for as much longer.
  if call('PTTL', KEYS[1]) > ELECTED_FOR then call('PEXPIRE', KEYS[1], ELECTED_FOR) end
  return {0}
end
-- A write that takes no memory comes first: then Redis refuses none of the others for want of memory.
call('DEL', KEYS[1])
call('SET', KEYS[1], session, 'PX', elected_for)

local unseen, unfinished, found, ended = {}, {}, {}, {}
local progress = { -- how far this has come
  left = most, soonest = math.huge,
  more = false, ready = false, -- of the queue: there may be more to do; there is something for a server
}

local function due_at(us) progress.soonest = math.min(progress.soonest, us) end
local function took(n, more) progress.left, progress.more = progress.left - n, progress.more or more end

local function forward(task, queue, key, id, score)
  local have = call('HMGET', task, 'state', 'siding_until', 'siding_lock', 'siding_ticket', 'siding_deadline', 'siding_wait_ends', 'group')
  if not have[1] and call('EXISTS', task) == 0 then
    call('ZREM', key, id) -- the task was deleted
    return
  end
  local waiting, ends, group = waits(have, score), end_of(have[5], have[6]), have[7]
  if waiting and (ends == 0 or ends > now_s) then
    mend(queue, id, have[3], have[4])
    keep_waiting(task, key, id, ends)
  elseif not waiting and group and group ~= '' then
    call('ZADD', asynq(queue, 'g:' .. group), now_s, id)
    call('SADD', asynq(queue, 'groups'), group) -- asynq leaves that out: an aggregator may never hear of it
    call('ZREM', key, id)
    call('HSET', task, 'state', 'aggregating')
  else
    call('LPUSH', asynq(queue, 'pending'), id)
    call('ZREM', key, id)
    call('HSET', task, 'state', 'pending', 'pending_since', digits(now) .. '000')
    if waiting then
      for lock in each(have[3]) do ours('ZREM', siding(queue, 'line:' .. lock), id) end
    end
    progress.ready = true
  end
end

local function forward_all(key, queue)
  local due = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if not due[1] then return end
  if tonumber(due[2]) > now_s then
    return due_at(math.ceil(tonumber(due[2])) * 1000000)
  end
  due = call('ZRANGEBYSCORE', key, '-inf', now_s, 'WITHSCORES', 'LIMIT', 0, math.min(progress.left, 50))
  for i = 1, #due, 2 do
    if safely(forward, task_of(queue, due[i]), queue, key, due[i], due[i + 1]) == 'failed' then
      call('ZADD', key, now_s + WAIT, due[i])
    end
  end
  took(#due / 2, true)
end

local function delete_expired(key, queue)
  local ids = call('ZRANGEBYSCORE', key, '-inf', now_s, 'LIMIT', 0, math.min(progress.left, clean))
  for _, id in ipairs(ids) do
    call('DEL', task_of(queue, id))
    call('ZREM', key, id)
  end
  took(#ids, #ids > 0 or progress.left <= 0)
end

-- What is due later than anything can be was written before Redis' clock stepped back. It becomes due now:
-- whoever looks at it finds its right time.
local function cut(key, limit, to)
  local too_far = call('ZRANGEBYSCORE', key, '(' .. digits(limit), '+inf', 'LIMIT', 0, 250)
  for _, member in ipairs(too_far) do call('ZADD', key, to, member) end
  took(#too_far, #too_far == 250)
end

-- The lock of an attempt lasts for too long, too. It gets as much time as its attempt gave it last: one that lives renews it
-- meanwhile. Returns for how long the attempt holds it from now on, ms; nil if it holds none.
local function cut_lock(task)
  local have = call('HMGET', task, 'siding_attempt', 'siding_lock', 'siding_ttl')
  local key = have[1] and have[2] and held_by(have[2], holder_of(have[1]))
  if not key then return nil end
  local ttl = tonumber(have[3] or '')
  if ttl then
    for one in each(key) do
      if call('PTTL', one) > ttl then call('PEXPIRE', one, digits(ttl)) end
    end
  end
  return left_of(key)
end

local function look_at_ready(key)
  if far > 0 then cut(key, now + far * 1000000, digits(now)) end
  local due = tonumber(ours('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if due and due <= now then progress.ready = true elseif due then due_at(due) end
end

-- A lease ends before its lock. If the attempt has none, or one of a server whose locks last longer, its lease is due now, as above;
-- but those of asynq last 30 s, so one without a lock may be as far ahead. They may be many, and stay: then some are not looked at.
local function cut_leases(key, queue)
  local plain = math.max(far, 31)
  for pass, from in ipairs({plain, far}) do
    local too_far = call('ZRANGEBYSCORE', key, '(' .. digits(now_s + from), pass == 1 and '+inf' or digits(now_s + plain), 'LIMIT', 0, 250)
    for _, id in ipairs(too_far) do
      local left = safely(cut_lock, task_of(queue, id))
      if pass == 1 or type(left) == 'number' then
        call('ZADD', key, type(left) == 'number' and left <= far * 1000 and leased(left) or in_seconds(0), id)
      end
    end
    took(#too_far, pass == 1 and #too_far == 250)
  end
end

local function look_at_leases(key, queue)
  if far > 0 then cut_leases(key, queue) end
  local due = tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  due = due and due * 1000000 + (EARLIER + 2) * 1000 -- then the lock of the task is gone, which ends in a ms
  if due and due <= now then ended[#ended + 1] = queue elseif due then due_at(due) end
end

for _, queue in ipairs(queues) do
  if progress.left <= 0 then
    unseen[#unseen + 1] = queue
  else
    progress.more, progress.ready = false, false
    safely(forward_all, asynq(queue, 'scheduled'), queue)
    safely(forward_all, asynq(queue, 'retry'), queue)
    if clean > 0 then safely(delete_expired, asynq(queue, 'completed'), queue) end
    safely(look_at_ready, siding(queue, 'ready'))
    safely(look_at_leases, asynq(queue, 'lease'), queue)
    if progress.more then unfinished[#unfinished + 1] = queue end
    if progress.ready and wake(queue) ~= 'paused' then found[#found + 1] = queue end
  end
end
for _, queue in ipairs(unfinished) do unseen[#unseen + 1] = queue end
return {1, now, progress.soonest < math.huge and math.ceil(progress.soonest) or -1, unseen, found, ended, troubles}
