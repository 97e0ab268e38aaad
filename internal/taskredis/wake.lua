-- Wakes one idle server of each queue, or a server at a list of its own.
--
-- KEYS[1]  and those that follow: the lists siding:{queue}:notify of the queues, or of servers
--
-- Returns nothing.
--
-- Guarantee: a list has an element, which wakes a server that waits, or the next one that does.

-- include notify

for _, list in ipairs({KEYS[1], unpack(KEYS, 2)}) do notify(list, 1) end
