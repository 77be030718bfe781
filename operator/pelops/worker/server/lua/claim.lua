-- include: entry
-- include: dead_letter
-- include: gone
-- Claim idle entries of a page, on servers whose XREADGROUP does not have CLAIM.
--
-- KEYS     source, dead_letter, worker_ledger  (same slot)
-- ARGV     group, me, prefix, trigger, min_idle_ms: number, start (where the page begins), page: number,
--          count: number, max_bytes: number
-- READS    time; xpending source; xrange source
-- WRITES   xclaim source; xadd dead_letter worker_ledger; xack source
-- USER     sdk-worker
-- RETURNS  {next (where to go on, or ''), taken (entries: ID, fields, idle_ms, deliveries),
--          gone (IDs whose body is gone)} (or the error of a group that is not there)
-- Costs  linear in the page, and in the bytes claimed, of which max_bytes are read, though always one
--        body. It does the same as XAUTOCLAIM, and also returns the former owner and the idle time of
--        each entry, and records entries without a body before it drops them.
-- Repeats safely: what was claimed is not idle any more.

local found = redis.pcall('XPENDING', source, group, start, '+', page)
if found.err then
  return found
end
local next_from = #found == page and '(' .. found[page][1] or ''
local taken, gone, bytes = {}, {}, 0
for _, entry in ipairs(bound_deliveries(found)) do
  local id, idle = entry[1], entry[3]
  if idle >= min_idle_ms or idle < 0 then
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
    { source = source, dead_letter = dead_letter, ledger = worker_ledger },
    { group = group, me = me, prefix = prefix, trigger = trigger }, gone, server_ms()
  )
end
return { next_from, taken, recorded.err and {} or recorded }
