-- Hand back entries that were delivered and not started, so that another worker may take them at once.
--
-- KEYS  source, handover  (same slot)
-- ARGV  group, me, idle_limit_ms, may_age (1: the server has no CLAIM), may_offer (1: offers are read), then
--       IDs
-- Returns  how many others may take now
-- Costs  linear in the IDs.
-- A server that knows XNACK gives them back to the group. Else an offer names them for whoever reads the
-- hand-over stream. Else they are made to look idle, for XAUTOCLAIM: where CLAIM is known, that would
-- cost a walk along all pending entries, and they wait for the idle limit instead.
-- Repeats safely: only what is ours still is touched.

local source, handover = KEYS[1], KEYS[2]
local group, me, limit, may_age, may_offer = unpack(ARGV, 1, 5)
local ours = {}
for i = 6, #ARGV do
  local entry = redis.call('XPENDING', source, group, ARGV[i], ARGV[i], 1)[1]
  if entry and entry[2] == me then
    ours[#ours + 1] = ARGV[i]
  end
end
if #ours == 0 then
  return 0
end
local given = redis.pcall('XNACK', source, group, 'SILENT', 'IDS', #ours, unpack(ours))
if type(given) ~= 'table' or not given.err then
  return #ours
end
if may_offer == '1' then
  local time = redis.call('TIME')
  -- Not what a process that begins anew under this name will read again.
  local before = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + 1)
  local offer = redis.pcall('XADD', handover, 'NOMKSTREAM', 'MAXLEN', '~', 1000, '*', 'consumer', me,
    'before', before, 'ids', table.concat(ours, ' '))
  if type(offer) == 'string' then
    return #ours
  end
end
if may_age ~= '1' then
  return 0
end
local aged = 0
for _, id in ipairs(ours) do
  -- XCLAIM drops what has no body: that stays pending, to be found and recorded.
  if #redis.call('XRANGE', source, id, id) == 1 then
    redis.call('XCLAIM', source, group, me, 0, id, 'IDLE', limit, 'JUSTID')
    aged = aged + 1
  end
end
return aged
