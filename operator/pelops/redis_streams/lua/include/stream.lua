-- include: entry
-- A stream and its groups as XINFO returns them.
-- XINFO STREAM reads two bodies, the first and the last: a script asks it once for each stream.

local function pairs_of(reply)
  local named = {}
  for i = 1, #reply, 2 do
    named[reply[i]] = reply[i + 1]
  end
  return named
end

-- What XINFO STREAM tells, by name, and the IDs of its first and last entry as first-id and
-- last-id, if it holds any; nil when there is no stream.
local function see_stream(key)
  if redis.call('TYPE', key).ok ~= 'stream' then
    return nil
  end
  local seen = pairs_of(redis.call('XINFO', 'STREAM', key))
  seen['first-id'] = seen['first-entry'] and seen['first-entry'][1] or nil
  seen['last-id'] = seen['last-entry'] and seen['last-entry'][1] or nil
  return seen
end

-- What XINFO GROUPS reports one group, by name, its lowest pending ID as lowest-pending, and the idle
-- time of that entry in milliseconds as lowest-idle: since its last delivery or heartbeat.
local function see_group(key, group)
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    if reply[2] == group then -- the name has been the first pair since groups exist
      local seen = pairs_of(reply)
      if seen['pending'] > 0 then
        local first = redis.call('XPENDING', key, group, '-', '+', 1)[1]
        seen['lowest-pending'] = first and first[1] or nil
        seen['lowest-idle'] = first and math.max(0, first[3]) or nil -- -1: given back by XNACK
      end
      return seen
    end
  end
  return nil
end

-- Whether an entry waits to be delivered by a group at this position. No command asks for an entry
-- without its body, so it is read only where XDEL has removed entries that high; `most` bytes of
-- bodies are read at most, and then the entry counts as there. The answer, and the bytes read.
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
