-- include: entry
-- Streams and groups as XINFO returns them.
-- XINFO STREAM reads two bodies, the first and the last, so scripts call it as rarely as possible.

local function pairs_of(reply)
  local named = {}
  for i = 1, #reply, 2 do
    named[reply[i]] = reply[i + 1]
  end
  return named
end

-- The reply of XINFO STREAM by name, with the IDs of the first and last entry, if any, as first-id and
-- last-id; nil if the key is not a stream.
local function see_stream(key)
  if redis.call('TYPE', key).ok ~= 'stream' then
    return nil
  end
  local seen = pairs_of(redis.call('XINFO', 'STREAM', key))
  seen['first-id'] = seen['first-entry'] and seen['first-entry'][1] or nil
  seen['last-id'] = seen['last-entry'] and seen['last-entry'][1] or nil
  return seen
end

-- The reply of XINFO GROUPS about one group by name; nil if the group does not exist. If it has pending
-- entries, lowest-pending is the lowest ID of these, and lowest-idle that entry's idle time in ms.
local function see_group(key, group)
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    if reply[2] == group then -- the name is the first pair in all versions of Redis
      local seen = pairs_of(reply)
      if seen['pending'] > 0 then
        local first = redis.call('XPENDING', key, group, '-', '+', 1)[1]
        seen['lowest-pending'] = first and first[1] or nil
        seen['lowest-idle'] = first and math.max(0, first[3]) or nil -- -1 after XNACK
      end
      return seen
    end
  end
  return nil
end

-- Whether an entry waits to be delivered to a group at this position. No command checks that an entry
-- exists without reading its body, so the body is read only if XDEL removed an entry with this ID or a
-- greater one. If `most`, the number of bytes that may be read, is used up, the entry counts as waiting.
-- Returns the answer and the bytes read.
local function look_whether_it_waits(key, seen, position, id, most)
  local first, last = seen['first-id'], seen['last-id']
  if not first or not comes_before(position, id) or comes_before(id, first) or comes_before(last, id) then
    return false, 0
  end
  local deleted = seen['max-deleted-entry-id'] or '0-0'
  if comes_before(deleted, id) or most <= 0 then
    return true, 0
  end
  local found, size = redis.call('XRANGE', key, id, id)[1], 0
  for _, part in ipairs(found and found[2] or {}) do
    size = size + #part
  end
  return found ~= nil, size
end
