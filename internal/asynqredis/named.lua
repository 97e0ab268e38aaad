-- Finds the resource of a task. This text comes before locking.lua and taken.lua.

-- Returns a task's resource. Returns nothing if the task names none in its header, or is not
-- encoded as expected. The resource is only a guess, as a payload may look like a header. The guard
-- compares the guess with the decoded task, and so does park_busy.
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
