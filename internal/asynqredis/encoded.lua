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

-- Returns the task's kind, deadline (Unix seconds), key of uniqueness, resource and priority from its
-- headers, whether it has a policy of its own, own last failure, and the bytes before and after its
-- last error, without the header of the resource. Returns nothing if the task is not encoded as
-- expected. The last of a repeated field counts.
local function parts(msg)
  local found = {kind = '', deadline = 0, unique = '', failure = '', priority = 0}
  local before, after, at, waited = {}, {}, 1, false
  while at <= #msg do
    local tag, value = number_at(msg, at)
    if not tag or tag < 8 or tag >= 2^32 then return end
    local field, kind, stop = math.floor(tag / 8), tag % 8
    local kept = field ~= 7 and field ~= OWN_FAILURE
    local n, from = number_at(msg, value)
    if not n then return end
    if kind == 0 then
      stop = from
      if field == 9 then found.deadline = n < 2^63 and n or -1 end -- before 1970
    elseif kind == 2 then
      stop = from + n
      if field == 1 then found.kind = string.sub(msg, from, stop - 1) end
      if field == 10 then found.unique = string.sub(msg, from, stop - 1) end
      if field == OWN_FAILURE or field == 7 and not waited then found.failure = string.sub(msg, from, stop - 1) end
      waited = waited or field == OWN_FAILURE
      if field == 15 then
        local name = string.sub(msg, from, math.min(stop, from + #RESOURCE) - 1)
        if name == RESOURCE then
          local size, text = number_at(msg, from + #RESOURCE)
          if not size or text + size ~= stop then return end
          found.resource, kept = string.sub(msg, text, stop - 1), false
        elseif string.find(string.sub(msg, from, stop - 1), string.sub(RESOURCE, 1, -2), 1, true) then
          return -- asynq writes the name first and then the value; the last of two resources could be this one
        elseif name == PRIORITY then
          found.priority = tonumber(string.match(string.sub(msg, from + #PRIORITY, stop - 1), '^\1([0-9])$') or 0)
        elseif string.sub(name, 1, #POLICY) == POLICY then
          found.policy = true
        end
      end
    else
      return
    end
    if stop > #msg + 1 then return end
    if kept then
      local part = field < 11 and before or after
      part[#part + 1] = string.sub(msg, at, stop - 1)
    end
    at = stop
  end
  found.before, found.after = table.concat(before), table.concat(after)
  return found
end

local function text(field, value) return encoded(field * 8 + 2) .. encoded(#value) .. value end

-- Returns the task with a reason of the guard's as its last error, followed by its own last
-- failure. The time of that failure stays as it is. Headers still come last.
local function with_reason(found, reason)
  if found.failure ~= '' then reason = reason .. '; last failure: ' .. found.failure end
  local header = found.resource and text(15, string.sub(RESOURCE, 1, -2) .. text(2, found.resource)) or ''
  return found.before .. text(7, reason) .. text(OWN_FAILURE, found.failure) .. found.after .. header
end
