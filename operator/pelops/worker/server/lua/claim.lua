-- include: entry
-- include: dead_letter
-- include: gone
-- Claim the idle entries among a page of pending entries, on servers whose XREADGROUP does not have CLAIM.
--
-- KEYS     source, dead_letter, worker_ledger  (same slot)
-- ARGV     group, me, prefix, trigger, min_idle_ms: number, start (where the page begins), page: number,
--          count: number, max_bytes: number
-- READS    time; xpending source; xrange source
-- WRITES   xclaim source; xadd dead_letter worker_ledger; xack source
-- USER     sdk-worker
-- Returns an error if the group does not exist.
-- Costs  linear in the page, and in the bytes read: max_bytes, but at least one body.
-- It does the same as XAUTOCLAIM. It also returns the idle time and the delivery count of each entry, and
-- records entries without a body before they leave the PEL.
-- Repeats safely: a claimed entry is no longer idle.

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
