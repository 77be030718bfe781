-- include: stream
-- include: own_letters
-- Which streams that existed before their group may be adopted. An absent or empty key may be. A stream
-- with entries may be if its first and last entry have the form that Pelops writes there.

-- Tests for the entries that Pelops writes, by the last word of the derived stream's key.
local function is_event(fields)
  return fields[1] == 'kind'
end
local WRITTEN = {
  ledger = is_event,
  ['worker-ledger'] = is_event,
  discarded = function(fields)
    return read_letter(fields) ~= nil
  end,
  handover = function(fields)
    return fields[1] == 'consumer' and fields[3] == 'before' and fields[5] == 'ids'
  end,
  retry = function(fields)
    local n = #fields
    return n >= 4 and string.find(fields[n - 3], 'original_id$') ~= nil
      and string.find(fields[n - 1], 'retry_count$') ~= nil
  end,
}

-- Whether the first and the last entry of a stream pass the test. True for an empty stream.
local function holds_only(seen, is_written)
  local first, last = seen['first-entry'], seen['last-entry']
  return not first or (is_written(first[2]) and is_written(last[2]))
end

local function last_word(key)
  return string.match(key, '[^:]*$')
end

-- Why Pelops may not write to a derived stream or trim it: 'entries' if it holds foreign entries, or
-- 'groups' and the name of a foreign group. nil if it may.
local function find_foreign(state, key, group)
  local what = last_word(key)
  if redis.call('HMGET', state, 'owned:' .. what)[1] then
    return nil
  end
  local seen = see_stream(key)
  if not seen then
    return nil
  end
  if not holds_only(seen, WRITTEN[what]) then
    return 'entries', ''
  end
  for _, reply in ipairs(seen['length'] == 0 and redis.call('XINFO', 'GROUPS', key) or {}) do
    if reply[2] ~= group then
      return 'groups', reply[2]
    end
  end
  return nil
end
