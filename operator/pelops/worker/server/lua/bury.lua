-- include: entry
-- include: dead_letter
-- include: body
-- include: gone
-- Record own pending entries whose body is gone, as the history shows them.
--
-- KEYS  source, dead_letter, ledger, state  (same slot)
-- ARGV  group, me, prefix, trigger, then IDs
-- Returns  done {IDs recorded} | wrong-type key type | no-permission command key
-- Costs  linear in the IDs. Reads bodies of those that are not gone, 256 KiB of them, though always one; the
--        IDs after these are left to the next history.
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
local gone, bytes = {}, 0
for i = 5, #ARGV do
  local entry = is_pending(source, group, ARGV[i])
  if entry and entry[2] == me and bytes <= MOST_BYTES then
    local found = redis.call('XRANGE', source, ARGV[i], ARGV[i])[1]
    if found then
      bytes = bytes + size_of_body(found[2])
    else
      gone[#gone + 1] = entry
    end
  end
end
local recorded = record_gone(
  { source = source, dead_letter = KEYS[2], ledger = KEYS[3], state = KEYS[4] },
  { group = group, me = me, prefix = ARGV[3], trigger = ARGV[4] }, gone, server_ms()
)
return recorded.err and recorded or { 'done', recorded }
