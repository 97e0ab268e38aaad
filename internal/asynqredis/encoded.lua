-- Reads and changes an encoded task, in the wire format of protocol buffers
-- (https://protobuf.dev/programming-guides/encoding/).

-- Returns the number at i, and the index after it; nothing if the number does not end, or has
-- more than 64 bits.
local function number_at(msg, i)
  local n, scale = 0, 1
  while true do
    local b = string.byte(msg, i)
    if not b or scale * b >= 2^64 then return end
    n, scale, i = n + b % 128 * scale, scale * 128, i + 1
    if b < 128 then return n, i end
  end
end

local function encoded(n)
  local s = ''
  while n >= 128 do
    s, n = s .. string.char(n % 128 + 128), math.floor(n / 128)
  end
  return s .. string.char(n)
end

-- The field in which a task keeps its own last failure while its last error is a reason of the
-- guard's. asynq does not know the field, so asynq drops the field when it writes an error itself.
local OWN_FAILURE = 7007

-- A header is a pair of texts, each with its length. This is how those begin that are read here.
local RESOURCE, PRIORITY, POLICY = '\10\15siding-resource\18', '\10\15siding-priority\18', '\10\13siding-policy\18'

local byte, sub = string.byte, string.sub

-- Returns the task's kind, deadline (Unix seconds), key of uniqueness, resource and priority from its
-- headers, whether it has a policy of its own, own last failure, the header of the resource, and the
-- bytes before and after its last error, without that header. Returns nothing if the task is not
-- encoded as expected. The last of a repeated field counts.
local function parts(msg)
  local found = {kind = '', deadline = 0, unique = '', failure = '', priority = 0, header = '', before = '', after = ''}
  local size, at, waited = #msg, 1, false
  local from, into = 1, false -- found[into] gets the fields from there to at
  while at <= size do
    local tag, n = byte(msg, at, at + 1)
    local value = at + 2
    if tag >= 128 or not n or n >= 128 then -- most tags and lengths have one byte
      tag, value = number_at(msg, at)
      if not tag or tag >= 2^32 then return end
      n, value = number_at(msg, value)
      if not n then return end
    end
    if tag < 8 then return end
    local kind = tag % 8
    local field, stop = (tag - kind) / 8, value
    local keeps = field ~= 7 and field ~= OWN_FAILURE and (field < 11 and 'before' or 'after')
    if kind == 0 then
      if field == 9 then found.deadline = n < 2^63 and n or -1 end -- before 1970
    elseif kind == 2 then
      stop = value + n
      if field == 1 then
        found.kind = sub(msg, value, stop - 1)
      elseif not keeps then
        if field == OWN_FAILURE or not waited then found.failure = sub(msg, value, stop - 1) end
        waited = waited or field == OWN_FAILURE
      elseif field == 10 then
        found.unique = sub(msg, value, stop - 1)
      elseif field == 15 then
        local name = sub(msg, value, math.min(stop, value + #RESOURCE) - 1)
        if name == RESOURCE then
          local length, text = number_at(msg, value + #RESOURCE)
          if not length or text + length ~= stop then return end
          found.resource, found.header, keeps = sub(msg, text, stop - 1), sub(msg, at, stop - 1), false
        elseif string.find(sub(msg, value, stop - 1), sub(RESOURCE, 1, -2), 1, true) then
          return -- asynq writes the name first and then the value; the last of two resources could be this one
        elseif name == PRIORITY then
          found.priority = tonumber(string.match(sub(msg, value + #PRIORITY, stop - 1), '^\1([0-9])$') or 0)
        elseif sub(name, 1, #POLICY) == POLICY then
          found.policy = true
        end
      end
    else
      return
    end
    if stop > size + 1 then return end
    if keeps ~= into then
      if into then found[into] = found[into] .. sub(msg, from, at - 1) end
      from, into = at, keeps
    end
    at = stop
  end
  if into then found[into] = found[into] .. sub(msg, from) end
  return found
end

-- Returns a field of an encoded task that has a text. tag is the encoded number of the field, and of
-- the type of a text.
local function text(tag, value) return tag .. encoded(#value) .. value end

-- Returns the header that names a resource.
local function header_of(resource) return text('\122', string.sub(RESOURCE, 1, -2) .. text('\18', resource)) end

-- Returns the task with a reason of the guard's as its last error, followed by its own last
-- failure. The time of that failure stays as it is. Headers still come last.
local function with_reason(found, reason)
  if found.failure ~= '' then reason = reason .. '; last failure: ' .. found.failure end
  return found.before .. text('\58', reason) .. text('\250\181\3', found.failure) .. found.after .. found.header
end
