-- include: entry
-- include: dead_letter
-- include: gone
-- Reset the idle time of entries that this worker is processing. A heartbeat keeps their delivery count.
-- With the trigger `history` the count grows by one, because a new process holds them.
--
-- KEYS     source, dead_letter, worker_ledger  (same slot)
-- ARGV     group, me, prefix, trigger, ids... (in the order in which they were delivered)
-- READS    time; xpending source
-- WRITES   xclaim source; xadd dead_letter worker_ledger; xack source
-- USER     sdk-worker
-- Costs  linear in the IDs; reads no body.
-- Repeats safely, but a repeated history counts twice. XCLAIM drops a pending entry whose body was deleted
-- and does not report it. So this script makes a dead letter of it, because no client can find it afterwards.

local lost, mine, ours = {}, {}, {}
for _, id in ipairs(ids) do
  local entry = is_pending(source, group, id)
  if entry and entry[2] == me then
    mine[#mine + 1] = entry
    ours[#ours + 1] = id
  else
    lost[#lost + 1] = id
  end
end
if #ours == 0 then
  return { lost, {} }
end
ours[#ours + 1] = 'JUSTID'
local kept = {}
for _, id in ipairs(redis.call('XCLAIM', source, group, me, 0, unpack(ours))) do
  kept[id] = true
end
local gone, names = {}, {}
for _, entry in ipairs(mine) do
  if kept[entry[1]] and trigger == 'history' then
    redis.call('XCLAIM', source, group, me, 0, entry[1], 'RETRYCOUNT', text(entry[4] + 1), 'JUSTID')
  elseif not kept[entry[1]] then
    gone[#gone + 1] = entry
    names[#names + 1] = entry[1]
  end
end
if #gone > 0 then
  record_gone(
    { source = source, dead_letter = dead_letter, ledger = worker_ledger },
    { group = group, me = me, prefix = prefix, trigger = trigger }, gone, server_ms()
  )
end
return { lost, names }
