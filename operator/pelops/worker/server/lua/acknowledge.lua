-- Acknowledge what is ours still.
--
-- KEYS  source
-- ARGV  group, me, deletes (1: also delete what no other group needs), then IDs
-- Returns  how many were acknowledged, {IDs that are not ours}
-- Costs  linear in the IDs.
-- Repeats safely, though a repetition calls lost what the first run acknowledged.

local source = KEYS[1]
local group, me = ARGV[1], ARGV[2]
local mine, lost = {}, {}
for i = 4, #ARGV do
  local entry = redis.call('XPENDING', source, group, ARGV[i], ARGV[i], 1)[1]
  if entry and entry[2] == me then
    mine[#mine + 1] = ARGV[i]
  else
    lost[#lost + 1] = ARGV[i]
  end
end
if #mine > 0 then
  if ARGV[3] == '1' then
    redis.call('XACKDEL', source, group, 'ACKED', 'IDS', #mine, unpack(mine))
  else
    redis.call('XACK', source, group, unpack(mine))
  end
end
return { #mine, lost }
