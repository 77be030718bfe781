-- include: stream
-- include: own_letters
-- What may be adopted of streams that exist before their group does. A key that is absent or empty
-- may; one that holds entries only when these are what Pelops writes there.

-- What the entries of a derived stream begin with or end in, by the last word of its key.
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

-- Whether the first and the last entry of a stream are as they have to be; true for none.
local function holds_only(seen, is_written)
  local first, last = seen['first-entry'], seen['last-entry']
  return not first or (is_written(first[2]) and is_written(last[2]))
end

local function last_word(key)
  return string.match(key, '[^:]*$')
end

-- Why a derived stream is not ours to fill and to empty: entries or groups, and such a group; nil when
-- it is.
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
