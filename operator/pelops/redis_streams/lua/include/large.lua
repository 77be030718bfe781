-- include: body
-- Entries that are too large to copy. A copy delays other clients and uses as much memory again. No
-- command returns the size of an entry without reading it, so each is read once. After that, the field
-- `large` of the state has 'ID:bytes' of these entries, separated by spaces.

local MOST_LARGE = 100 -- each scan reads entries beyond this number again

-- The sizes in bytes by ID.
local function parse_large(field)
  local known = {}
  for id, bytes in string.gmatch(field or '', '(%d+%-%d+):(%d+)') do
    known[id] = tonumber(bytes)
  end
  return known
end

local function write_large(state, known)
  local words = {}
  for id, bytes in pairs(known) do
    if #words < MOST_LARGE then
      words[#words + 1] = id .. ':' .. string.format('%.0f', bytes)
    end
  end
  if #words == 0 then
    redis.call('HDEL', state, 'large')
  else
    table.sort(words)
    redis.call('HSET', state, 'large', table.concat(words, ' '))
  end
end
