-- Wakes one idle server of each queue.
--
-- KEYS     the notify lists of the queues
--
-- Guarantee: a list has one element more, or has one already, which wakes the next server that waits.

for _, list in ipairs(KEYS) do
  if redis.call('EXISTS', list) == 0 then redis.call('LPUSH', list, '1') end
end
