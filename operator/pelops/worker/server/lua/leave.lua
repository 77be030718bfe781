-- include: entry
-- include: worker_ledger
-- Remove a worker's own consumer if it has no pending entries, and delete the worker's records.
--
-- KEYS     worker_ledger, worker_state, started, stream, others... (other streams of the group; same slot)
-- ARGV     group, me
-- READS    xpending stream others
-- WRITES   xgroup|delconsumer stream; [xgroup|delconsumer others]; xadd worker_ledger;
--          hdel worker_state started
-- USER     sdk-worker
-- Costs  constant for each stream.
-- Repeats safely: the second run deletes nothing, and only records the event again. One script checks the
-- consumer and deletes it, because entries that were delivered in between would be lost permanently.

local refusal = find_missing_right()
if refusal then
  return refusal
end
local present = {}
for _, key in ipairs({ stream, unpack(others) }) do
  local pending = redis.pcall('XPENDING', key, group, '-', '+', 1, me)
  if not pending.err then
    if #pending > 0 then
      return { 'owns-entries' }
    end
    present[#present + 1] = key
  end
end
if present[1] ~= stream then
  return { 'absent' }
end
for _, key in ipairs(present) do
  redis.call('XGROUP', 'DELCONSUMER', key, group, me)
end
redis.pcall('HDEL', worker_state, 'boot:' .. me)
redis.pcall('HDEL', started, me)
add_worker_event(worker_ledger, ledger_event('consumer-removed', {
  stream = stream, consumer = me, actor = me,
}))
return { 'removed' }
