-- A part of a step, parking: a task that finds its lock busy joins the line of its queue.
--
-- Comes after start.lua.

-- Returns what the dashboard shows of a task that waits for a lock, as a field of asynq's encoded message: the
-- last of a repeated field counts, so it is appended. It is for people; no code reads it. '' if it would not
-- be UTF-8, which asynq refuses.
local function sentence(lock, value)
  local holder = type(value) == 'string' and string.match(value, '^siding:[^:]*:([%w%p ]*)$')
  holder = holder and string.sub(holder, 1, 200) -- ids may be long
  local text = 'waits for ' .. string.sub(lock, #prefix + 1) .. (holder and ', held by ' .. holder or value and value ~= LIMITED and not reserved(value) and ', held by another program' or ', in its turn')
  if string.find(text, '[\128-\255]') then
    local rest = string.gsub(text, '[\194-\223][\128-\191]', '')
    rest = string.gsub(rest, '[\225-\236\238\239][\128-\191][\128-\191]', '')
    rest = string.gsub(rest, '[\241-\243][\128-\191][\128-\191][\128-\191]', '')
    if string.find(rest, '[\128-\255]') then return '' end
  end
  local size = #text < 128 and string.char(#text) or string.char(128 + #text % 128, math.floor(#text / 128))
  return '\58' .. size .. text
end

-- The ticket of the last task in a line, 0 if there is none.
local function last_ticket(queue, lock)
  return tonumber(ours('ZRANGE', siding(queue, 'line:' .. lock), -1, -1, 'WITHSCORES')[2] or '0')
end

-- Parks the head of pending under a lock that free_key has found busy.
--   ends  as end_of has it
local function park(q, id, task, lock, have, ends)
  local b = busy[lock]
  local mine = b.of[q.name]
  if not mine then
    mine = {joined = false, last = nil, parked = {}}
    b.of[q.name] = mine
    parked[#parked + 1] = {q.index, lock, b.value, '', mine.parked}
  end
  local priority = tonumber(have.siding_priority or '0') or 0
  local own = have.siding_lock and lock_of(have.siding_lock) == lock and tonumber(have.siding_ticket)
  local ticket = own
  if not ticket and priority > 0 then ticket = new_ticket() - priority * HEAD_START end
  if not ticket then
    -- Behind all who came before, also if the clock has stepped back.
    if not mine.last then
      local fence = try('GET', beside(lock, 'fence'))
      mine.last = math.max(last_ticket(q.name, lock), type(fence) == 'string' and tonumber(string.match(fence, '^%d+')) or 0)
    end
    ticket = new_ticket(mine.last)
    mine.last = ticket
  end
  ticket = digits(ticket)
  if not mine.joined or own or priority > 0 then
    ours('ZADD', lines_of(lock), 'LT', ticket, q.name)
    -- Behind others who wait for a free lock it changes nothing: the entry says when the first of them may start.
    local behind, due = b.free and not own and priority == 0, b.due
    if b.free then
      -- If the line of another queue is older, and somebody serves that, it comes first.
      local first = Lines().first_line(lock)
      if first ~= q.name and Lines().is_served(first) then due = now + Lines().OFFER end
    end
    ours('ZADD', q.ready, behind and 'NX' or 'LT', digits(due), lock)
    mine.joined, q.quiet = true, false
  end
  local times = have.siding_parked and digits(have.siding_parked + 1) or '1'
  ends = until_of(ends)
  local message = b.text ~= '' and (have.msg or call('HSTRLEN', task, 'msg') <= SENTENCE and call('HGET', task, 'msg'))
  if message and #message <= SENTENCE then
    call('HSET', task, 'state', 'retry', 'siding_lock', lock, 'siding_ticket', ticket, 'siding_until', ends, 'siding_parked', times,
      'msg', without(message, have.siding_text) .. b.text, 'siding_text', b.text)
  else
    call('HSET', task, 'state', 'retry', 'siding_lock', lock, 'siding_ticket', ticket, 'siding_until', ends, 'siding_parked', times)
  end
  local said = mine.parked
  local n = #said
  said[n + 1], said[n + 2], said[n + 3] = id, have.siding_kind or '', times
  keep_unique(task, have.unique_key, id, ends)
  local waits, pairs_of_line = q.waits, q.lines[lock]
  if not pairs_of_line then
    pairs_of_line = {}
    q.lines[lock] = pairs_of_line
  end
  waits[#waits + 1], waits[#waits + 2] = ends, id
  pairs_of_line[#pairs_of_line + 1], pairs_of_line[#pairs_of_line + 2] = ticket, id
end

return sentence, last_ticket, park
