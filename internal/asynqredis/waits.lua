-- What the scripts have in common that look for tasks which wait; it is put in front of each of them.

-- Reports whether a task's last error is a reason of ours. It is not once asynq has written a
-- failure of the task's own, also where a server without the guard has run it: its ticket is then
-- of no use any more. The bytes are the tag of field 7007, see encoded.lua.
local function waits(msg)
  return msg and string.find(msg, '\250\181\3', 1, true)
end

