-- include: entry
-- include: dead_letter
-- include: gone
-- Record own pending entries whose body is gone, as the history shows them.
--
-- KEYS  source, dead_letter, ledger, state  (same slot)
-- ARGV  group, me, prefix, trigger, then IDs
-- Returns  done {IDs recorded} | wrong-type key type | no-permission command key
-- Costs  linear in the IDs.
-- Repeats safely: what was recorded is not pending any more. The letter precedes the acknowledgement.

local source = KEYS[1]
local group, me = ARGV[1], ARGV[2]
local refusal = find_wrong_type(KEYS, { 'stream', 'stream', 'stream', 'hash' })
  or find_forbidden({
    { 'XACK', source, group, '0-1' }, { 'XADD', KEYS[2], '*', 'f', 'v' }, { 'XADD', KEYS[3], '*', 'f', 'v' },
  })
if refusal then
  return refusal
end
local gone = {}
for i = 5, #ARGV do
  local entry = is_pending(source, group, ARGV[i])
  if entry and entry[2] == me and #redis.call('XRANGE', source, ARGV[i], ARGV[i]) == 0 then
    gone[#gone + 1] = entry
  end
end
local recorded = record_gone(
  { source = source, dead_letter = KEYS[2], ledger = KEYS[3], state = KEYS[4] },
  { group = group, me = me, prefix = ARGV[3], trigger = ARGV[4] }, gone, server_ms()
)
return recorded.err and recorded or { 'done', recorded }
