-- include: entry
-- Find a key of the group that has another type than expected.
--
-- KEYS     stream, retry, offer_stream, dead_letter, worker_ledger, worker_state,
--          started  (same slot)
-- ARGV     none
-- READS    type stream retry offer_stream dead_letter worker_ledger worker_state
--          started
-- WRITES   none
-- USER     sdk-worker
-- Returns the key and its type, or nothing.
-- Costs  constant.
-- Repeats safely: it writes nothing.

local found = find_refusal()
return found and { found[2], found[3] } or {}
