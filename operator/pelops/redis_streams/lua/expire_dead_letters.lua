-- include: entry
-- include: stream
-- include: ids
-- include: trim
-- include: ledger
-- Drop dead letters that have been kept for long enough, and records of the ledgers that have and
-- that every audit has archived.
--
-- KEYS     dead_letter, ledger, state, audit, worker_ledger  (same slot)
-- ARGV     uid, letters_ms: number, ledger_ms: number (for how long each is kept), batch: number
--          (of each to remove at most), waits_ms: number (how old a record may become that an audit
--          has not archived)
-- READS    type dead_letter ledger state audit worker_ledger; time; hmget state audit; xinfo|stream dead_letter
--          ledger worker_ledger
-- WRITES   xtrim dead_letter ledger worker_ledger; xadd ledger
-- USER     operator
-- RETURNS  done letters (removed), last (ID up to which none is left, or ''), records (removed),
--               more (1 when more may go, else 0)
--          | not-owner | wrong-type key, type | no-permission command, key
-- Costs  linear in what is removed, about 100 nodes of each stream. Of bodies it reads the first
-- and the
--        last of each, and of the letters' twice.
-- Repeats safely: the second run finds none that is old enough. The trimming comes first and the
-- ledger after it: Redis keeps a script's effects together. An audit whose archive is older than
-- waits_ms has ended or is broken, and the ledger waits for it no longer.

local refusal = find_refusal()
if refusal then
  return refusal
end
if redis.call('HMGET', state, 'owner:uid')[1] ~= uid then
  return { 'not-owner' }
end

local now = server_ms()
local function instant_before(kept_ms)
  return text(math.max(0, now - kept_ms)) .. '-0'
end

-- The first ID of the ledger that stays: no younger than `ledger_ms`, and not archived by every
-- audit.
local function first_kept()
  local first, oldest = instant_before(ledger_ms), instant_before(waits_ms)
  local archived = redis.call('HMGET', audit, 'archived')[1] or ''
  for id in string.gmatch(archived, '%S+ (%d+%-%d+)') do
    if comes_before(id, first) and comes_before(oldest, id) then
      first = id
    end
  end
  return first
end

local function expire(key, oldest)
  local seen = see_stream(key)
  if not (seen and seen['first-id'] and comes_before(seen['first-id'], oldest)) then
    return 0
  end
  return trim_below(key, seen, oldest, batch, true)
end

-- From here on it writes.
local letters, last = expire(dead_letter, instant_before(letters_ms)), ''
local records = expire(ledger, first_kept()) + expire(worker_ledger, first_kept())
if letters > 0 then
  local left = see_stream(dead_letter)
  last = left['first-id'] and id_before(left['first-id']) or left['last-generated-id']
  redis.call('XADD', ledger, '*', unpack(ledger_event('letters-expired', {
    count = text(letters), last_id = last,
  })))
end
return { 'done', letters, last, records, (letters > 0 or records > 0) and 1 or 0 }
