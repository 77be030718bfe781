-- include: entry
-- Find a key of the group that holds something else.
--
-- KEYS  stream, retry, handover, dead_letter, ledger, state, started  (same slot)
-- ARGV  none
-- Returns  key, type | nothing
-- Costs  little.
-- Repeats safely.

local found = find_wrong_type(KEYS, { 'stream', 'stream', 'stream', 'stream', 'stream', 'hash', 'hash' })
return found and { found[2], found[3] } or {}
