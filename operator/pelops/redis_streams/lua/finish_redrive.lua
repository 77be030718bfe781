-- include: entry
-- include: ids
-- include: redrive
-- End a redrive, so that another one of the group can run, and optionally delete its fields.
--
-- KEYS     state
-- ARGV     uid, redrive (uid of the StreamRedrive), forgets: flag (delete its fields)
-- READS    type state; hmget state
-- WRITES   hdel state
-- USER     operator
-- Costs  constant.
-- Repeats safely: the second run finds nothing to delete.

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', RUNNING)
if is_not_owner(held[1], uid) then
  return { 'not-owner' }
end
local gone = {}
if string.match(held[2] or '', '^%S+') == redrive then
  gone[1] = RUNNING
end
if forgets then
  for _, name in ipairs(REDRIVE_FIELDS) do
    gone[#gone + 1] = 'redrive:' .. redrive .. ':' .. name
  end
end
if #gone > 0 then
  redis.call('HDEL', state, unpack(gone))
end
return { 'finished' }
