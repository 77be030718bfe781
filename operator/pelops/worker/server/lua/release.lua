-- include: entry
-- include: dead_letter
-- include: gone
-- Return entries that were delivered but not started, so that another worker can take them at once.
--
-- KEYS     source, dead_letter, worker_ledger, offer_stream  (same slot)
-- ARGV     group, me, prefix, trigger, processing_timeout_ms, may_age: flag (the server has no
--          CLAIM), may_offer: flag (workers read offers), ids...
-- READS    time; xpending source
-- WRITES   [xnack source for release]; [xadd offer_stream]; xclaim source; xadd dead_letter worker_ledger;
--          xack source
-- USER     sdk-worker
-- Returns the number of entries that other workers can take now.
-- Costs  linear in the IDs; reads no body.
-- On a server with XNACK, that command gives the entries back to the group. On other servers, an offer names
-- them for workers that read the offer stream. If no worker reads it, their idle time is raised to the
-- processing timeout, so that other workers claim them. On a server with CLAIM that would cost a walk along
-- all pending entries, so there they wait for the processing timeout.
-- Repeats safely: only entries that this worker still holds change.

local ours, entries = {}, {}
for _, id in ipairs(ids) do
  local entry = is_pending(source, group, id)
  if entry and entry[2] == me then
    ours[#ours + 1] = id
    entries[#entries + 1] = entry
  end
end
if #ours == 0 then
  return 0
end
local given = redis.pcall('XNACK', source, group, 'SILENT', 'IDS', #ours, unpack(ours))
if type(given) ~= 'table' or not given.err then
  return #ours
end
if may_offer then
  local time = redis.call('TIME')
  -- Entries that a later process of this name reads again are delivered after this time, and stay with it.
  local before = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + 1)
  local offer = redis.pcall('XADD', offer_stream, 'NOMKSTREAM', 'MAXLEN', '~', 1000, '*', 'consumer', me,
    'before', before, 'ids', table.concat(ours, ' '))
  if type(offer) == 'string' then
    return #ours
  end
end
if not may_age then
  return 0
end
local aged, gone = 0, {}
for i, id in ipairs(ours) do
  if #redis.call('XCLAIM', source, group, me, 0, id, 'IDLE', processing_timeout_ms, 'JUSTID') == 1 then
    aged = aged + 1
  else
    gone[#gone + 1] = entries[i] -- XCLAIM drops an entry without a body, and does not report it
  end
end
if #gone > 0 then
  record_gone(
    { source = source, dead_letter = dead_letter, ledger = worker_ledger },
    { group = group, me = me, prefix = prefix, trigger = trigger }, gone, server_ms()
  )
end
return aged
