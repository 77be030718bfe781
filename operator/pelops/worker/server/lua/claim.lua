-- include: entry
-- include: dead_letter
-- include: gone
-- Claim idle entries of a page, on servers whose XREADGROUP knows no CLAIM.
--
-- KEYS  source, dead_letter, ledger, state  (same slot)
-- ARGV  group, me, prefix, trigger, min_idle_ms, from (where the page begins), page, count, max_bytes
-- Returns  where to go on, or '', {{id, fields, idle_ms, deliveries} ...}, {IDs whose body is gone}
--          or the error of a group that is not there
-- Costs  linear in the page, and in the bytes claimed, of which max_bytes are read, though always one
--        body. What XAUTOCLAIM does, but that it tells whose an entry was, how long it was idle, and
--        records what is gone before it drops it.
-- Repeats safely: what was claimed is not idle any more.

local source = KEYS[1]
local group, me, min_idle = ARGV[1], ARGV[2], tonumber(ARGV[5])
local page, count, max_bytes = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local found = redis.pcall('XPENDING', source, group, ARGV[6], '+', page)
if found.err then
  return found
end
local next_from = #found == page and '(' .. found[page][1] or ''
local taken, gone, bytes = {}, {}, 0
for _, entry in ipairs(found) do
  local id, idle = entry[1], entry[3]
  if idle >= min_idle or idle < 0 then
    if #taken >= count or bytes > max_bytes then
      next_from = id
      break
    end
    local body = redis.call('XRANGE', source, id, id)[1]
    if not body then
      gone[#gone + 1] = entry
    else
      for _, part in ipairs(body[2]) do
        bytes = bytes + #part
      end
      redis.call('XCLAIM', source, group, me, 0, id, 'RETRYCOUNT', text(entry[4] + 1), 'JUSTID')
      taken[#taken + 1] = { id, body[2], idle, entry[4] }
    end
  end
end
local recorded = {}
if #gone > 0 then
  recorded = record_gone(
    { source = source, dead_letter = KEYS[2], ledger = KEYS[3], state = KEYS[4] },
    { group = group, me = me, prefix = ARGV[3], trigger = ARGV[4] }, gone, server_ms()
  )
end
return { next_from, taken, recorded.err and {} or recorded }
