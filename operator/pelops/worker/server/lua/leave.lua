-- include: entry
-- Remove a worker's own consumer, if it owns nothing, with all that is remembered of it.
--
-- KEYS  ledger, state, started, then the streams of the group, the main one first (same slot)
-- ARGV  group, me
-- Returns  removed | owns-entries | absent | no-permission command key
-- Costs  little.
-- Repeats safely: the second run finds no such group or consumer. It is deleted only when nothing is
-- pending with it, in the same script: deleting one with pending entries would lose these for ever.

local ledger, state, started = unpack(KEYS, 1, 3)
local group, me = ARGV[1], ARGV[2]
local refusal = find_forbidden({
  { 'XGROUP', 'DELCONSUMER', KEYS[4], group, me }, { 'XADD', ledger, '*', 'f', 'v' }, { 'HDEL', state, 'f' },
  { 'HDEL', started, 'f' },
})
if refusal then
  return refusal
end
local present = {}
for i = 4, #KEYS do
  local pending = redis.pcall('XPENDING', KEYS[i], group, '-', '+', 1, me)
  if not pending.err then
    if #pending > 0 then
      return { 'owns-entries' }
    end
    present[#present + 1] = KEYS[i]
  end
end
if present[1] ~= KEYS[4] then
  return { 'absent' }
end
for _, stream in ipairs(present) do
  redis.call('XGROUP', 'DELCONSUMER', stream, group, me)
end
redis.pcall('HDEL', state, 'crowd:' .. me, 'pod:' .. me, 'boot:' .. me)
redis.pcall('HDEL', started, me)
redis.pcall('XADD', ledger, '*', 'kind', 'consumer-removed', 'stream', KEYS[4], 'consumer', me, 'actor', me)
return { 'removed' }
