-- Stores one task: pending, scheduled or aggregating in a group; unique or not.
--
-- KEYS[1]  the task, asynq:{queue}:t:<id>
-- KEYS[2]  where it goes: asynq:{queue}:pending, asynq:{queue}:scheduled or asynq:{queue}:g:<group>
-- KEYS[3]  siding:{queue}:notify; for a group asynq:{queue}:groups
-- KEYS[4]  its key of uniqueness; not given for a task without one
--
-- ARGV[1]     id
-- ARGV[2]     state: pending, scheduled or aggregating
-- ARGV[3]     when it comes, Unix seconds; '' unless it is scheduled
-- ARGV[4]     group, or ''
-- ARGV[5]     seconds for which it is unique, or ''
-- ARGV[6]     1 if it is so whatever becomes of it, 0 if it is so while it is unfinished
-- ARGV[7]     name of the call; '' if nobody else can have chosen the id
-- ARGV[8...]  fields of the task's hash, names and values
--
-- Returns 1 when the task is stored, 0 when there is another task of its id, -1 when another one has its key of
-- uniqueness, which is looked at first, as asynq does it. A key that holds '/' before an id is of a task that is unique whatever
-- becomes of it: nobody deletes that key, as it holds no id. One that holds the id of a task that has ended, or is nowhere, is
-- free: asynq's tools leave it where they archive.
--
-- Guarantee: the task is stored as asynq's scripts store it, or it is nowhere. The same call made twice, as its answer
-- was lost, returns 1 twice, as long as the task is there.

-- include notify

local task, place, beside, unique = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, state, at = ARGV[1], ARGV[2], ARGV[3]
local group, unique_for, always, call = ARGV[4], ARGV[5], ARGV[6] == '1', ARGV[7]

-- Whether the task that is there was stored by this very call.
local function stored()
  if call == '' then return redis.call('EXISTS', task) == 1 end
  return redis.call('HGET', task, 'siding_call') == call
end

-- Whether the task with this id in the same queue is unfinished.
local function unfinished(other)
  local state = redis.call('HGET', string.sub(task, 1, -#id - 1) .. other, 'state')
  return state and state ~= 'archived' and state ~= 'completed'
end

local holder = unique and redis.call('GET', unique)
if holder and (always or string.sub(holder, 1, 1) == '/' or unfinished(holder)) then
  return stored() and 1 or -1
end
if redis.call('EXISTS', task) == 1 then
  return stored() and 1 or 0
end

-- Where it goes comes before the task: only that can be of a wrong type, and then nobody finds a task that is in no list.
local now = redis.call('TIME') -- seconds and microseconds
if state == 'pending' then
  local pending = redis.call('LPUSH', place, id)
  local nanoseconds = now[1] .. string.format('%06d', tonumber(now[2])) .. '000' -- more digits than a number has
  redis.call('HSET', task, 'state', state, 'pending_since', nanoseconds, unpack(ARGV, 8))
  notify(beside, pending)
elseif state == 'scheduled' then
  redis.call('ZADD', place, at, id)
  redis.call('HSET', task, 'state', state, unpack(ARGV, 8))
else
  redis.call('SADD', beside, group)
  redis.call('ZADD', place, now[1], id)
  redis.call('HSET', task, 'state', state, 'group', group, unpack(ARGV, 8))
end
if unique then redis.call('SET', unique, always and '/' .. id or id, 'EX', unique_for) end
return 1
