-- What asynq keeps of tasks that have ended: the archive, and statistics.
--
-- Comes after common.lua, and after these: today, asynq's day for its statistics; and stats_until, when they expire, Unix
-- seconds.

-- Puts a task into the archive. asynq keeps it for 90 days, and fewer than 10,000 tasks; some of the others go each time. unique
-- is the key of uniqueness that is free from then on, or ''. One that asynq's client has set lasts for its time, see keep_unique.
local function archive(queue, id, unique)
  local ends
  if unique == '' then
    local have = call('HMGET', task_of(queue, id), 'unique_key', 'siding_unique_until')
    if have[2] then unique, ends = have[1] or '', tonumber(have[2]) end
  end
  if unique ~= '' and try('GET', unique) == id then
    if ends and ends > now_s then call('EXPIREAT', unique, ends) else call('DEL', unique) end
  end
  local key = asynq(queue, 'archived')
  call('ZADD', key, now_s, id)
  local old = call('ZRANGEBYSCORE', key, '-inf', now_s - 90 * 86400, 'LIMIT', 0, 100)
  local extra = call('ZCARD', key) - #old - 9999
  if extra > 0 then old = call('ZRANGE', key, 0, math.min(100, #old + extra) - 1) end
  for _, gone in ipairs(old) do
    if gone ~= id then
      call('DEL', task_of(queue, gone))
      call('ZREM', key, gone)
    end
  end
end

-- Counts tasks of a queue that have ended. asynq begins both totals anew when that of the processed is full.
local function count(queue, processed, failed)
  local full = false
  for i, what in ipairs({'processed', 'failed'}) do
    local n, day = i == 1 and processed or failed, asynq(queue, what .. ':' .. today)
    if n > 0 then
      if call('INCRBY', day, n) == n then call('EXPIREAT', day, stats_until) end
      full = full or type(try('INCRBY', asynq(queue, what), n)) == 'table'
      if full then call('SET', asynq(queue, what), 1) end
    end
  end
end

return archive, count
