-- Acknowledge the entries that this worker still holds.
--
-- KEYS     source
-- ARGV     group, me, deletes: flag (delete entries that no other group needs), ids...
-- READS    xpending source
-- WRITES   xack source; [xackdel source for deleting]
-- USER     sdk-worker
-- Costs  linear in the IDs.
-- Repeats safely, but a repetition returns as lost what the first run acknowledged.

local mine, lost = {}, {}
for _, id in ipairs(ids) do
  local entry = redis.call('XPENDING', source, group, id, id, 1)[1]
  if entry and entry[2] == me then
    mine[#mine + 1] = id
  else
    lost[#lost + 1] = id
  end
end
if #mine > 0 then
  if deletes then
    redis.call('XACKDEL', source, group, 'ACKED', 'IDS', #mine, unpack(mine))
  else
    redis.call('XACK', source, group, unpack(mine))
  end
end
return { #mine, lost }
