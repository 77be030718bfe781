-- include: ledger
-- Records of entries that a group lost.

-- Whether a loss was recorded after the observation that reports it: then it is the same loss. An
-- observation without a time comes from the status of a resource, which is a few minutes old at most.
local function is_recorded(found_ms, observed_ms, now)
  local found = string.match(found_ms or '', '^%d+$') and #found_ms <= 15 and tonumber(found_ms)
  if not found or found > now then
    return false -- a time in the future was written before the clock was set back, and is ignored
  end
  if observed_ms ~= '' then
    return found >= tonumber(observed_ms)
  end
  return now - found < 600000
end

-- The ledger is written first: if the script ends after that, the next run records the loss again.
local function write_loss(ledger, state, now, loss)
  redis.call('XADD', ledger, '*', unpack(ledger_event('data-loss', loss)))
  redis.call('HSET', state, 'loss:at_least', loss.at_least, 'loss:at_most', loss.at_most,
    'loss:position', loss.position, 'loss:seen_ms', text(now), 'loss:found_ms', text(now),
    'loss:cause', loss.cause, 'loss:undelivered', loss.undelivered, 'loss:pending', loss.pending,
    'loss:observed_ms', loss.observed_ms)
end
