-- include: entry
-- include: loss
-- include: ledger
-- Record that consumers with pending entries were deleted, unless a ledger explains it.
--
-- KEYS     ledger, worker_ledger, state  (same slot)
-- ARGV     uid, observed_ms (when they were last observed), at_most: number (entries that were dropped
--          at most), sticky: flag (the condition stays until it is acknowledged),
--          consumers{name, pending: number}... (each with its number of pending entries)
-- READS    type ledger worker_ledger state; time; hmget state; xrange ledger worker_ledger
-- WRITES   xadd ledger; hset state
-- USER     operator for recovery cleanup
-- Costs  reads up to 50 records of each ledger.
-- Workers and the operator remove a consumer only if it has no pending entries, and record that in the same
-- script, the workers in a ledger of their own. If a ledger has more records since the observation than this
-- script reads, it reports nothing.
-- Repeats safely: a caller that observed the group before it was recorded reports the same deletion. The
-- ledger is written first: if the script ends after that, the next run records it again.

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'dropped:found_ms')
if held[1] ~= uid then
  return { 'not-owner' }
end
local now = server_ms()
if is_recorded(held[2], observed_ms, now) then
  return { 'known' }
end

local removed = {}
for _, key in ipairs({ ledger, worker_ledger }) do
  local since = redis.call('XRANGE', key, observed_ms, '+', 'COUNT', 50)
  if #since == 50 then
    return { 'explained' }
  end
  for _, entry in ipairs(since) do
    local fields = entry[2]
    if fields[2] == 'consumer-removed' then
      for i = 3, #fields, 2 do
        if fields[i] == 'consumer' then
          removed[fields[i + 1]] = true
        end
      end
    end
  end
end
local names, total = {}, 0
for _, consumer in ipairs(consumers) do
  if not removed[consumer.name] then
    names[#names + 1] = consumer.name
    total = total + consumer.pending
  end
end
total = math.min(total, at_most)
if total <= 0 then
  return { 'explained' }
end

redis.call('XADD', ledger, '*', unpack(ledger_event('pending-dropped', {
  at_most = text(total), observed_ms = observed_ms, consumer = names,
})))
redis.call('HSET', state, 'dropped:at_most', text(total), 'dropped:consumer', names[1],
  'dropped:consumers', text(#names), 'dropped:observed_ms', observed_ms, 'dropped:found_ms', text(now))
if sticky then
  redis.call('HSET', state, 'dropped:seen_ms', text(now))
end
return { 'recorded', text(total) }
