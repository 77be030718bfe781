-- include: entry
-- Count the undelivered entries of a group at a bounded cost.

local EACH_PART = 32 -- bytes of overhead for each name and each value
-- The most entries that a deep count reads after the position. It reads up to a quarter as many before
-- the position. A server reads so many small entries in less than 2 ms.
local DEEP = 400
local LARGEST_PAGE = 4 -- entries, because the size of their bodies is not known in advance

local function size_of(entry)
  local size = #entry[1]
  for _, part in ipairs(entry[2]) do
    size = size + #part + EACH_PART
  end
  return size
end

-- Count the entries from `from` to `to`. Returns the count, whether these are all, and the ID of the
-- first; nil if XRANGE is forbidden. Stops after `limit` entries or about `bytes` bytes. Pages grow as
-- long as the entries are small.
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

-- Count the entries after a group's position. Returns the count, whether these are all, and the ID of
-- the first if there is one; nil if XRANGE is forbidden. `stream` is as see_stream returns it. If too many
-- entries are after the position, it counts those up to the position and subtracts them from the length.
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
