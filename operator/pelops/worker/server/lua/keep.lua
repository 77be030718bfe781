-- include: entry
-- include: dead_letter
-- include: gone
-- Say that this worker still works on entries: their idle time begins anew. Their delivery count stays
-- for a heartbeat, and grows by one where the trigger is `history`: a new process has them now.
--
-- KEYS  source, dead_letter, ledger, state  (same slot)
-- ARGV  group, me, prefix, trigger, then IDs, in the order in which they were delivered
-- Returns  {IDs that are not ours}, {IDs that were ours, whose body is gone}
-- Costs  linear in the IDs; reads no body.
-- Repeats safely; a repeated history counts twice. XCLAIM drops a pending entry whose body is gone and
-- says nothing of it, so that becomes a dead letter here: nobody else could see it any more.

local source = KEYS[1]
local group, me = ARGV[1], ARGV[2]
local lost, mine, ids = {}, {}, {}
for i = 5, #ARGV do
  local entry = is_pending(source, group, ARGV[i])
  if entry and entry[2] == me then
    mine[#mine + 1] = entry
    ids[#ids + 1] = ARGV[i]
  else
    lost[#lost + 1] = ARGV[i]
  end
end
if #ids == 0 then
  return { lost, {} }
end
ids[#ids + 1] = 'JUSTID'
local kept = {}
for _, id in ipairs(redis.call('XCLAIM', source, group, me, 0, unpack(ids))) do
  kept[id] = true
end
local gone, names = {}, {}
for _, entry in ipairs(mine) do
  if kept[entry[1]] and ARGV[4] == 'history' then
    redis.call('XCLAIM', source, group, me, 0, entry[1], 'RETRYCOUNT', entry[4] + 1, 'JUSTID')
  elseif not kept[entry[1]] then
    gone[#gone + 1] = entry
    names[#names + 1] = entry[1]
  end
end
if #gone > 0 then
  record_gone(
    { source = source, dead_letter = KEYS[2], ledger = KEYS[3], state = KEYS[4] },
    { group = group, me = me, prefix = ARGV[3], trigger = ARGV[4] }, gone, server_ms()
  )
end
return { lost, names }
