-- Remove entries below an ID.

-- The cost of a trim depends on the nodes of the stream that it frees. A node holds about a hundred small
-- entries, or one large one. Returns how many entries NODES nodes hold on average. `seen` is the stream as
-- see_stream returns it.
local NODES = 100
local function entries_of_nodes(seen)
  return math.ceil(NODES * seen['length'] / math.max(1, seen['radix-tree-keys']))
end

-- Remove entries below `id`, about `limit` at most, and return how many were removed. It removes whole
-- nodes, about NODES of them, which is cheap and bounded. If no whole node can be removed and `exactly` is
-- true, it removes the entries below `id` within a node.
local function trim_below(key, seen, id, limit, exactly)
  if limit < 1 then
    return 0
  end
  local gone, most = 0, math.min(limit, entries_of_nodes(seen))
  while gone == 0 and most <= limit do
    gone = redis.call('XTRIM', key, 'MINID', '~', id, 'LIMIT', most)
    -- If the first node alone holds more than `most` entries, nothing is removed: try with more.
    most = most < limit and math.min(2 * most, limit) or limit + 1
  end
  if gone == 0 and exactly then
    gone = redis.call('XTRIM', key, 'MINID', '=', id)
  end
  return gone
end
