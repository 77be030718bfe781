-- include: entry
-- How many entries a group has not been given yet, at a bounded cost.

local EACH_PART = 32 -- what a name or a value costs beside its bytes, in bytes
-- What is counted where it is worth it; a quarter of it again behind the position. A server takes
-- less than 2 ms for as many small entries.
local DEEP = 400
local LARGEST_PAGE = 4 -- bodies of unknown size: no page reads many of them before it is known

local function size_of(entry)
  local size = #entry[1]
  for _, part in ipairs(entry[2]) do
    size = size + #part + EACH_PART
  end
  return size
end

-- The entries from `from` to `to`, whether these are all, and the ID of the first; nil when XRANGE
-- is forbidden. It stops after `limit` entries or about `bytes` of them: pages grow as long as
-- entries prove small.
local function count_between(key, from, to, limit, bytes)
  local counted, page, left, largest, first = 0, 1, bytes, 1, nil
  while counted < limit and (counted == 0 or left >= largest) do
    page = math.min(page, limit - counted, math.max(1, math.floor(left / largest)))
    local found = redis.pcall('XRANGE', key, from, to, 'COUNT', page)
    if found.err then
      return nil
    end
    counted = counted + #found
    first = first or (found[1] and found[1][1])
    if #found < page then
      return counted, true, first
    end
    for _, entry in ipairs(found) do
      local size = size_of(entry)
      left, largest = left - size, math.max(largest, size)
    end
    from = '(' .. found[#found][1]
    page = math.min(2 * page, LARGEST_PAGE)
  end
  return counted, false, first
end

-- Entries after a group's position, whether these are all, and the ID of the first of them, if
-- there is one; nil when they may not be counted. Of a stream as see_stream reports it. When those
-- ahead are too many, those behind may be few: then what is left of the stream's length lies ahead.
local function count_ahead(key, stream, position, limit, bytes)
  if not stream['last-id'] or not comes_before(position, stream['last-id']) then
    return 0, true
  end
  if comes_before(position, stream['first-id']) then
    return stream['length'], true, stream['first-id']
  end
  local counted, is_all, first = count_between(key, '(' .. position, '+', limit, bytes)
  if not counted or is_all then
    return counted, is_all, first
  end
  local behind, is_start = count_between(key, '-', position, math.floor(limit / 4), bytes / 4)
  if is_start then
    return stream['length'] - behind, true, first
  end
  return counted, false, first
end
