-- Takes the lock of a task that is being dequeued, or has the task wait for it, within
-- dequeue.lua, whose ARGV it reads. attempt.lua and refuse.lua come before it; take_ahead is
-- defined by package lock.

-- Returns a task's resource; nothing where it names none in its header, or is not encoded as
-- expected. It is no more than a guess, as a payload may look like a header: who asks for the
-- lock compares it, and so does refuse.
local function named(msg)
  -- A header is a pair of texts, each with its length, and headers come last.
  local _, key = string.find(msg, '\10\15siding-resource\18', math.max(1, #msg - 1000), true)
  local length, long = string.byte(msg, (key or #msg) + 1, (key or #msg) + 2)
  if not length then return end
  local from = key + 2
  if length >= 128 then -- seven bits a byte, the lowest first
    if not long or long >= 128 then return end
    length, from = length - 128 + long * 128, key + 3
  end
  local resource = string.sub(msg, from, from + length - 1)
  if #resource == length then return resource end
end

-- Returns {resource, token, fence, time since the reservation in us or '-1'} when the lock has
-- been taken; nil and what refuse returns when the task has been put aside; nothing when the
-- lock has to be asked for.
local function ahead(task, id, msg, ticket)
  local resource, holder = named(msg), holder_of(msg, id, ARGV[5])
  if not resource or not holder then return end
  local with = {ARGV[9], ARGV[10], ARGV[11], ARGV[12]}
  local waiter = ARGV[4] .. id
  local grant, value = take_ahead(with, resource, ARGV[3], holder, waiter)
  if grant then return {resource, unpack(grant)} end
  return nil, value and refuse(task, id, msg, resource, waiter, value, with, ticket)
end

