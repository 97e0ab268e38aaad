-- Notifies once, as the process that has taken a notification does not need it. notify.lua comes
-- before it.
--
-- KEYS[1]  siding:{queue}:notify
--
-- Returns 1.
--
-- Guarantees: those of notify.lua. The same call made twice (its reply was lost) wakes a worker for
-- nothing.

notify(KEYS[1], 1)
return 1
