-- Says of queues that a server of theirs has a free slot now.
--
-- KEYS[1]  slots    hash of queues by when a server of theirs had a free slot last, us
-- ARGV[1...]  the queues
--
-- Returns nothing.
--
-- Guarantee: none is needed. Whoever frees a lock offers it to the oldest line first if that line's queue is among
-- these.

local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
local values = {}
for _, queue in ipairs({unpack(ARGV, 1)}) do
  values[#values + 1], values[#values + 2] = queue, now
end
redis.call('HSET', KEYS[1], unpack(values))
redis.call('EXPIRE', KEYS[1], 86400)
