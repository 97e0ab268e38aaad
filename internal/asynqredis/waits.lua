-- Tells waiting tasks from failed ones. This text comes before the scripts that list or wake tasks.

-- Reports whether a task's last error is a reason of the guard's. asynq replaces the reason by a
-- failure of the task's own, also on a server without the guard. The task's ticket is then of no
-- use any more. The bytes are the tag of field 7007, see encoded.lua.
local function waits(msg)
  return msg and string.find(msg, '\250\181\3', 1, true)
end

