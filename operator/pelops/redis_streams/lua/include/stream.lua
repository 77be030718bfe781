-- A stream and its groups as XINFO tells them. Needs nothing.

local function pairs_of(reply)
  local named = {}
  for i = 1, #reply, 2 do
    named[reply[i]] = reply[i + 1]
  end
  return named
end

-- What XINFO STREAM tells, by name, and the IDs of its first and last entry as first-id and last-id,
-- if it holds any; nil when there is no stream.
local function see_stream(key)
  if redis.call('TYPE', key).ok ~= 'stream' then
    return nil
  end
  local seen = pairs_of(redis.call('XINFO', 'STREAM', key))
  seen['first-id'] = seen['first-entry'] and seen['first-entry'][1] or nil
  seen['last-id'] = seen['last-entry'] and seen['last-entry'][1] or nil
  return seen
end

-- What XINFO GROUPS tells of one group, by name, and its lowest pending ID as lowest-pending.
local function see_group(key, group)
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    if reply[2] == group then -- the name has been the first pair since groups exist
      local seen = pairs_of(reply)
      if seen['pending'] > 0 then
        local first = redis.call('XPENDING', key, group, '-', '+', 1)[1]
        seen['lowest-pending'] = first and first[1] or nil
      end
      return seen
    end
  end
  return nil
end
