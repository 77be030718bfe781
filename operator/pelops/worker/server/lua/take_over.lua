-- Take what an offer of the hand-over stream names, as far as its owner has it since before the cut: what
-- a process that began anew under the owner's name has read again is that one's.
--
-- KEYS  source, handover  (same slot)
-- ARGV  group, me, offer, owner, before_ms, max_bytes, then IDs
-- Returns  {{id, fields, idle_ms, deliveries} ...}
-- Costs  linear in the IDs and in the bytes taken, of which max_bytes are read, though always one body.
-- Repeats safely: what was taken is not the owner's any more. What is left the next sweep offers again;
-- what has no body is left to it as well.

local source, handover = KEYS[1], KEYS[2]
local group, me, offer, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local before, max_bytes = tonumber(ARGV[5]) or 0, tonumber(ARGV[6])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken, bytes = {}, 0
for i = 7, #ARGV do
  if bytes > max_bytes then
    break
  end
  local id = ARGV[i]
  local entry = redis.call('XPENDING', source, group, id, id, 1)[1]
  if entry and entry[2] == owner and now - entry[3] < before then
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
redis.pcall('XACK', handover, group, offer)
return taken
