-- Trimming below an ID.

-- Freeing a node of the stream costs the server time, however many entries it holds: a hundred
-- small ones, or a large one. `seen` is the stream as see_stream reports it.
local NODES = 100
local function entries_of_nodes(seen)
  return math.ceil(NODES * seen['length'] / math.max(1, seen['radix-tree-keys']))
end

-- How many entries below `id` went, `limit` at most. Whole nodes of the stream go first, which is
-- cheap and bounded, about a hundred nodes at once; `exactly` then takes what is left of the last
-- one, once no whole node goes.
local function trim_below(key, seen, id, limit, exactly)
  if limit < 1 then
    return 0
  end
  local gone, most = 0, math.min(limit, entries_of_nodes(seen))
  while gone == 0 and most <= limit do
    gone = redis.call('XTRIM', key, 'MINID', '~', id, 'LIMIT', most)
    -- Nothing goes when the first node alone holds more.
    most = most < limit and math.min(2 * most, limit) or limit + 1
  end
  if gone == 0 and exactly then
    gone = redis.call('XTRIM', key, 'MINID', '=', id)
  end
  return gone
end
