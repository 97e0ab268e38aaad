-- Freeing a lock.
--
-- Comes after lines.lua.

-- Frees a lock that is held or reserved by a key, or several that are held by theirs, and gives it to whoever came first: it is
-- reserved for a goroutine, or offered to the lines. by is the name of the call, for a reservation; a trace comes behind '-trace-'.
-- queue is that of the attempt that frees it, if any. waiting is how many of the wait queue and the lines there are, if the caller
-- knows.
local function free(key, by, queue, waiting)
  if several(key) then
    for one in each(key) do free(one, by, queue) end
    return
  end
  local lock = lock_of(key)
  delete_key(key)
  waiting = waiting or waiting_for(lock)
  if waiting > 0 then Lines().hand_on(key, by, queue, waiting) end
end

return free
