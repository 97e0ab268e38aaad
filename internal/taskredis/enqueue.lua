-- Stores one task: pending, scheduled, debounced or aggregating in a group; unique or not.
--
-- KEYS[1]  the task, asynq:{queue}:t:<id>
-- KEYS[2]  where it goes: asynq:{queue}:pending, asynq:{queue}:scheduled or asynq:{queue}:g:<group>
-- KEYS[3]  siding:{queue}:notify; for a group asynq:{queue}:groups
-- KEYS[4]  its key of uniqueness, or of its debounce: siding:{queue}:debounce:<kind>:<digest>; not given for a task without
--
-- ARGV[1]     id
-- ARGV[2]     state: pending, scheduled or aggregating; or debounced, for one that is scheduled by Redis' clock
-- ARGV[3]     when it comes, Unix seconds; the delay of a debounced task, seconds; else ''
-- ARGV[4]     group, or ''
-- ARGV[5]     seconds for which it is unique; the longest delay of a debounced task, seconds; else ''
-- ARGV[6]     1 if it is so whatever becomes of it, 0 if it is so while it is unfinished
-- ARGV[7]     name of the call; '' if nobody else can have chosen the id
-- ARGV[8...]  fields of the task's hash, names and values
--
-- Returns 1 when the task is stored, 0 when there is another task of its id, -1 when another one has its key of
-- uniqueness, which is looked at first, as asynq does it. A key that holds '/<id>/<call>' is of a task that is unique whatever
-- becomes of it: nobody deletes that key, as it holds no id. One that holds the id of a task that has ended, or is nowhere, is
-- free to tasks that are unique while they are unfinished: asynq's tools leave it where they archive. A debounced task returns the id of the task that it has replaced, or 1.
--
-- Guarantees: the task is stored as asynq's scripts store it, or it is nowhere. The same call made twice, as its answer
-- was lost, answers twice that it is stored, as long as the task is there. A debounced task is stored once until a minute after
-- it was due, unless another one with its key has come in between. Of those with one key, at most one waits for its delay.

-- include notify

local task, into, beside = KEYS[1], KEYS[2], KEYS[3]
local id, state, at = ARGV[1], ARGV[2], ARGV[3]
local group, unique_for, always, call = ARGV[4], ARGV[5], ARGV[6] == '1', ARGV[7]
local unique = state ~= 'debounced' and KEYS[4]
local holds = always and '/' .. id .. '/' .. call or id -- what its key of uniqueness holds; no id of ours has a slash

-- The key of another task of the same queue.
local function task_of(other) return string.sub(task, 1, -#id - 1) .. other end

-- Whether the task that is there was stored by this very call.
local function stored()
  if call == '' then return redis.call('EXISTS', task) == 1 end
  return redis.call('HGET', task, 'siding_call') == call
end

-- Whether the task with this id in the same queue is unfinished.
local function unfinished(other)
  local state = redis.call('HGET', task_of(other), 'state')
  return state and state ~= 'archived' and state ~= 'completed'
end

-- Stores a debounced task, which replaces the last one with its key if that still waits for its delay. It comes a delay after
-- now, but no later than the longest delay after the first of those that have replaced each other. Times are rounded up to
-- whole seconds, as asynq has no others, and are all of Redis' clock, as several clients set them.
local function debounce(key, delay, longest)
  local last = redis.call('HMGET', key, 'id', 'due', 'first', 'replaced')
  local other, due, first, replaced = last[1], tonumber(last[2] or ''), tonumber(last[3] or ''), last[4]
  if other == id then return replaced ~= '' and replaced or 1 end -- this very call has done it; its task may have run by now
  if redis.call('EXISTS', task) == 1 then return 1 end -- so has it, and another one has begun anew
  local time = redis.call('TIME') -- seconds and microseconds
  local now = tonumber(time[1]) + (tonumber(time[2]) > 0 and 1 or 0)
  local replaces = other and first and due and due > tonumber(time[1])
  if replaces then -- and it has not been run, archived or deleted meanwhile
    local have = redis.call('HMGET', task_of(other), 'state', 'siding_debounce')
    replaces = have[1] == 'scheduled' and have[2] == key
  end
  if not replaces or first > now then first = now end -- Redis' clock may have been put back
  due = math.min(now + delay, first + longest)
  -- The new one is there before the other one goes: what Redis refuses changes nothing.
  redis.call('ZADD', into, due, id)
  redis.call('HSET', task, 'state', 'scheduled', unpack(ARGV, 8))
  redis.call('HSET', key, 'id', id, 'due', due, 'first', first, 'replaced', replaces and other or '')
  redis.call('EXPIRE', key, math.max(due - now, 0) + 60) -- a minute for calls that are sent again
  if not replaces then return 1 end
  redis.call('ZREM', into, other)
  redis.call('DEL', task_of(other))
  return other
end

if state == 'debounced' then return debounce(KEYS[4], tonumber(at), tonumber(unique_for)) end
local holder = unique and redis.call('GET', unique)
if holder and (always or string.sub(holder, 1, 1) == '/' or unfinished(holder)) then
  return (stored() or always and holder == holds) and 1 or -1 -- its task may have run by now
end
if redis.call('EXISTS', task) == 1 then
  return stored() and 1 or 0
end

-- Where it goes comes before the task: only that can be of a wrong type, and then nobody finds a task that is in no list.
local now = redis.call('TIME') -- seconds and microseconds
if state == 'pending' then
  local pending = redis.call('LPUSH', into, id)
  local nanoseconds = now[1] .. string.format('%06d', tonumber(now[2])) .. '000' -- more digits than a number has
  redis.call('HSET', task, 'state', state, 'pending_since', nanoseconds, unpack(ARGV, 8))
  notify(beside, pending)
elseif state == 'scheduled' then
  redis.call('ZADD', into, at, id)
  redis.call('HSET', task, 'state', state, unpack(ARGV, 8))
else
  redis.call('SADD', beside, group)
  redis.call('ZADD', into, now[1], id)
  redis.call('HSET', task, 'state', state, 'group', group, unpack(ARGV, 8))
end
if unique then redis.call('SET', unique, holds, 'EX', unique_for) end
return 1
