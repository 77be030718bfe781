-- include: ledger
-- What is written of entries that a group lost.

-- Whether a loss was recorded after the observation that reports it: then it is the same one. An
-- observation without a time is a resource's status, which is minutes old at most.
local function is_recorded(found_ms, observed_ms, now)
  local found = string.match(found_ms or '', '^%d+$') and #found_ms <= 15 and tonumber(found_ms)
  if not found or found > now then
    return false -- a time in the future was written before the clock went back, and counts as none
  end
  if observed_ms ~= '' then
    return found >= tonumber(observed_ms)
  end
  return now - found < 600000
end

-- The ledger comes first: dying after it, the next run tells it once more.
local function write_loss(ledger, state, now, loss)
  redis.call('XADD', ledger, '*', unpack(ledger_event('data-loss', loss)))
  redis.call('HSET', state, 'loss:at_least', loss.at_least, 'loss:at_most', loss.at_most,
    'loss:position', loss.position, 'loss:seen_ms', text(now), 'loss:found_ms', text(now),
    'loss:cause', loss.cause, 'loss:undelivered', loss.undelivered, 'loss:pending', loss.pending,
    'loss:observed_ms', loss.observed_ms)
end
