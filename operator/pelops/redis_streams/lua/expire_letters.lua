-- include: entry
-- include: stream
-- include: ids
-- include: trim
-- Drop dead letters and records of the ledger that have been kept for long enough, by age alone.
--
-- KEYS  dead_letter, ledger, state  (same slot)
-- ARGV  uid, letters_ms, ledger_ms (for how long each is kept), batch (of each to remove at most)
-- Returns  verdict, then
--            done   letters removed, last ID up to which none is left or '', records removed,
--                   1 when more may go, else 0
--            not-owner | wrong-type key type | no-permission command key
-- Costs  linear in what is removed.
-- Repeats safely: the second run finds none that is old enough. The trimming comes first and the
-- ledger after it: Redis keeps a script's effects together.

local dead_letter, ledger, state = unpack(KEYS)
local uid, letters_ms, ledger_ms, batch = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local refusal = find_wrong_type(KEYS, { 'stream', 'stream', 'hash' })
  or find_forbidden({
    { 'XTRIM', dead_letter, 'MINID', '~', '0-1', 'LIMIT', '1' },
    { 'XTRIM', ledger, 'MINID', '~', '0-1', 'LIMIT', '1' }, { 'XADD', ledger, '*', 'f', 'v' },
  })
if refusal then
  return refusal
end
if redis.call('HMGET', state, 'owner:uid')[1] ~= uid then
  return { 'not-owner' }
end

local now = server_ms()
local function expire(key, kept_ms)
  local seen = see_stream(key)
  local oldest = text(math.max(0, now - kept_ms)) .. '-0'
  if not (seen and seen['first-id'] and comes_before(seen['first-id'], oldest)) then
    return 0
  end
  return trim_below(key, oldest, batch, true)
end

-- From here on it writes.
local letters, last = expire(dead_letter, letters_ms), ''
local records = expire(ledger, ledger_ms)
if letters > 0 then
  local left = see_stream(dead_letter)
  last = left['first-id'] and id_before(left['first-id']) or left['last-generated-id']
  redis.call('XADD', ledger, '*', 'kind', 'letters-expired', 'count', text(letters), 'last_id', last)
end
return { 'done', letters, last, records, (letters > 0 or records > 0) and 1 or 0 }
