-- Takes the lock of a task that is being dequeued, or parks the task. This text is part of
-- dequeue.lua, and reads the ARGV of that. attempt.lua, named.lua and lock.lua come
-- before it, and so does with_parking, which defines park_busy and park_run.

-- Returns whether one of the patterns fits a resource: its name, or a class that begins it, such as
-- 'account:*'. Each of the patterns is between line breaks.
local function limited(resource, patterns)
  local function has(pattern) return string.find(patterns, '\n' .. pattern .. '\n', 1, true) end
  local colon = string.find(resource, ':', 1, true)
  while colon do
    if has(string.sub(resource, 1, colon) .. '*') then return true end
    colon = string.find(resource, ':', colon + 1, true)
  end
  return has(resource) or has('*')
end

-- Returns {resource, token, fence, time since the reservation, its nonce} when it has taken the
-- lock, see take.lua; nil and what park_busy returns when it has parked the task; nothing when the guard has
-- to acquire the lock stepwise.
local function lock_or_park(task, id, msg, ticket)
  local resource, holder = named(msg), holder_of(msg, id, ARGV[5])
  if not resource or not holder or ARGV[13] ~= '' and limited(resource, ARGV[13]) then return end
  local with = {ARGV[9], ARGV[10], ARGV[11], ARGV[12]}
  local waiter = ARGV[4] .. id
  local grant, value = acquire_lock(with, resource, ARGV[3], holder, waiter)
  if grant then return {resource, unpack(grant)} end
  if not value then return end
  if not park_busy then with_parking() end
  return nil, park_busy(task, id, msg, resource, waiter, value, with, ticket)
end

