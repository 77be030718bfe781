-- Trimming below an ID. Needs nothing.

-- How many entries below `id` went, `limit` at most. Whole nodes of the stream go first, which is
-- cheap and bounded; `exactly` then takes what is left of the last one, once no whole node goes.
local function trim_below(key, id, limit, exactly)
  if limit < 1 then
    return 0
  end
  local gone = redis.call('XTRIM', key, 'MINID', '~', id, 'LIMIT', limit)
  if gone == 0 and exactly then
    gone = redis.call('XTRIM', key, 'MINID', '=', id)
  end
  return gone
end
