-- include: entry
-- include: dead_letter
-- include: body
-- include: gone
-- Make dead letters of this worker's pending entries whose body was deleted.
--
-- KEYS     source, dead_letter, worker_ledger  (same slot)
-- ARGV     group, me, prefix, trigger, ids...
-- READS    type source dead_letter worker_ledger; time; xpending source; xrange source
-- WRITES   xadd dead_letter worker_ledger; xack source
-- USER     sdk-worker
-- Costs  linear in the IDs. It reads the bodies that exist, 256 KiB but at least one. The worker's next read
--        of its history returns the remaining IDs.
-- Repeats safely: a recorded entry is no longer pending. The dead letter is added before the
-- acknowledgement.

local refusal = find_refusal()
if refusal then
  return refusal
end
local gone, bytes = {}, 0
for _, id in ipairs(ids) do
  local entry = is_pending(source, group, id)
  if entry and entry[2] == me and bytes <= MOST_BYTES then
    local found = redis.call('XRANGE', source, id, id)[1]
    if found then
      bytes = bytes + size_of_body(found[2])
    else
      gone[#gone + 1] = entry
    end
  end
end
local recorded = record_gone(
  { source = source, dead_letter = dead_letter, ledger = worker_ledger },
  { group = group, me = me, prefix = prefix, trigger = trigger }, gone, server_ms()
)
return recorded.err and recorded or { 'done', recorded }
