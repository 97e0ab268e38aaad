-- Wakes one idle server of each queue.
--
-- KEYS  the lists siding:{queue}:notify of the queues
--
-- Guarantee: a list has an element, which wakes a server that waits, or the next one that does.

-- include notify

for _, list in ipairs(KEYS) do notify(list, 1) end
