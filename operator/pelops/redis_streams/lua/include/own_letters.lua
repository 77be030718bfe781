-- include: letter_fields
-- The group to which the dead letters of a stream belong. Invariant 14: an entry is trimmed, expired or
-- deleted only if both the record beside the stream and the entry's own fields name this group.

-- Whether the record beside a dead-letter stream names this group.
local function owns_dead_letters(dead_letter_owner, stream, group)
  local named = redis.call('HMGET', dead_letter_owner, 'stream', 'group')
  return named[1] == stream and named[2] == group
end

-- Returns the values of the last pairs of a dead letter by their names without the prefix, how many items
-- of `fields` precede them, and the prefix. Returns nil if the entry is not a dead letter of any group.
local function read_letter(fields)
  local count = #LETTER_FIELDS
  local before = #fields - 2 * count
  if before < 0 then
    return nil
  end
  local first = fields[before + 1]
  local prefix = string.sub(first, 1, #first - #LETTER_FIELDS[1])
  local named = {}
  for i, name in ipairs(LETTER_FIELDS) do
    if fields[before + 2 * i - 1] ~= prefix .. name then
      return nil
    end
    named[name] = fields[before + 2 * i]
  end
  return named, before, prefix
end

local function names_group(named, stream, group, retry)
  return named.group == group and (named.stream == stream or named.stream == retry)
end

-- Whether an entry is a dead letter of this group: its last pairs are those of add_dead_letter, with any
-- prefix, and name the group and one of its streams.
local function is_own_letter(fields, stream, group, retry)
  local named = read_letter(fields)
  return named ~= nil and names_group(named, stream, group, retry)
end

-- The key of the retry stream beside a state key: derived keys of a group differ only in their last word.
local function retry_beside(state)
  return (string.gsub(state, '[^:]*$', 'retry'))
end

-- The number of consumer groups of a stream; 0 if it does not exist.
local function count_groups(key)
  return redis.call('TYPE', key).ok == 'stream' and #redis.call('XINFO', 'GROUPS', key) or 0
end
