-- include: deliveries
-- Claim the entries of an offer that their owner has held since before the cutoff. Entries that a new
-- process of the same name has read again stay with that process.
--
-- KEYS     source, offer_stream  (same slot)
-- ARGV     group, me, offer, owner, before (a time in ms), max_bytes: number, ids...
-- READS    time; xpending source; xrange source
-- WRITES   xclaim source; [xadd offer_stream]; [xack offer_stream]
-- USER     sdk-worker
-- Costs  linear in the IDs and in the bytes read: max_bytes, but at least one body. The remaining entries
--        are offered again, to the next worker that reads the offer stream.
-- Repeats safely: the former owner no longer holds the claimed entries. The next scan handles entries
-- without a body.

local before_ms = tonumber(before) or 0
local taken, left, bytes = {}, {}, 0

-- In Redis 7.0 the clock advances during a script. The time is read after the idle time, so the delivery can
-- appear later than it was, never earlier. In doubt, the entry stays with its owner.
local function was_delivered_before(idle)
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) - idle < before_ms
end

for _, id in ipairs(ids) do
  local entry = bound_deliveries(redis.call('XPENDING', source, group, id, id, 1))[1]
  local is_offered = entry and entry[2] == owner and was_delivered_before(entry[3])
  if is_offered and bytes > max_bytes then
    left[#left + 1] = id
  elseif is_offered then
    local body = redis.call('XRANGE', source, id, id)[1]
    if body then
      for _, part in ipairs(body[2]) do
        bytes = bytes + #part
      end
      redis.call('XCLAIM', source, group, me, 0, id, 'RETRYCOUNT', string.format('%.0f', entry[4] + 1), 'JUSTID')
      taken[#taken + 1] = { id, body[2], entry[3], entry[4] }
    end
  end
end
if #left > 0 then
  -- If this fails, the operator repeats the offer of entries that no worker takes.
  redis.pcall('XADD', offer_stream, 'NOMKSTREAM', 'MAXLEN', '~', 1000, '*', 'consumer', owner,
    'before', before, 'ids', table.concat(left, ' '))
end
redis.pcall('XACK', offer_stream, group, offer)
return taken
