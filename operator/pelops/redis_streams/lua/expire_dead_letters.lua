-- include: entry
-- include: stream
-- include: ids
-- include: adoption
-- include: body
-- include: trim
-- include: ledger
-- Delete dead letters of this group after their retention, then discarded ones, and records of the
-- ledgers that every audit has archived.
--
-- KEYS     dead_letter, ledger, state, audit, dead_letter_owner, worker_ledger, [discarded]
--          (same slot; the last one if a former call returned has_discarded)
-- ARGV     uid, stream, group, after (an ID of the dead-letter stream after which to continue, or ''),
--          letters_ms: number, ledger_ms: number (for how long each is kept), batch: number
--          (of each to remove at most), waits_ms: number (how long a record is kept for an audit that
--          has not archived it)
-- READS    type dead_letter ledger state audit dead_letter_owner worker_ledger discarded; time;
--          hmget state audit dead_letter_owner; xinfo|stream dead_letter ledger worker_ledger discarded;
--          xinfo|groups dead_letter discarded; xrange dead_letter discarded
-- WRITES   xdel dead_letter discarded; xtrim ledger worker_ledger; xadd ledger
-- USER     operator
-- Costs  linear in the dead letters that are read: 256 KiB and 300 of them, but at least one. If none is
--        deleted, the same for discarded ones. Then linear in the records removed, about 100 nodes of
--        each ledger.
-- Invariant 14: dead letters are deleted only from a stream that no consumer group reads and whose record
-- names this group. An entry that is not a dead letter of this group stays.
-- Repeats safely: the second run finds none that is old enough. The removal comes before its ledger event:
-- Redis keeps a script's effects together. An audit whose archive is older than waits_ms has ended or is
-- broken, and the ledgers no longer wait for it.

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'owned:discarded')
local has_discarded = held[2] and 1 or false
if held[1] ~= uid then
  return { 'not-owner' }
end

local now = server_ms()
local function instant_before(kept_ms)
  return text(math.max(0, now - kept_ms)) .. '-0'
end

-- Ledger records before this ID are removed: they are older than `ledger_ms`, and every audit that the
-- ledgers wait for has archived them.
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

local function expire_records(key, oldest)
  local what = last_word(key)
  local seen = redis.call('HMGET', state, 'owned:' .. what)[1] and see_stream(key)
  if not (seen and seen['first-id'] and comes_before(seen['first-id'], oldest)) then
    return 0
  end
  if not WRITTEN[what](seen['first-entry'][2]) and not WRITTEN[what](seen['last-entry'][2]) then
    return 0 -- another stream has replaced it; single foreign entries among the records are removed
  end
  return trim_below(key, seen, oldest, batch, true)
end

-- Returns the IDs of this group's dead letters that are old enough, how many other entries are old enough,
-- and where to continue.
local MOST_LOOKED_AT, LARGEST_PAGE = 300, 50
local function find_old_letters(key, after)
  local old, foreign, looked_at, bytes, page, largest = {}, 0, 0, 0, 1, 1
  local from, oldest = after == '' and '-' or '(' .. after, '(' .. instant_before(letters_ms)
  if not owns_dead_letters(dead_letter_owner, stream, group) or count_groups(key) > 0 then
    return old, foreign, ''
  end
  local most, retry = math.min(batch, MOST_LOOKED_AT), retry_beside(state)
  while looked_at < most and bytes < MOST_BYTES do
    local found = redis.call('XRANGE', key, from, oldest, 'COUNT', page)
    for _, entry in ipairs(found) do
      local size = size_of_body(entry[2])
      bytes, largest = bytes + size, math.max(largest, size)
      if is_own_letter(entry[2], stream, group, retry) then
        old[#old + 1] = entry[1]
      else
        foreign = foreign + 1
      end
    end
    looked_at = looked_at + #found
    if #found < page then
      return old, foreign, ''
    end
    from = '(' .. found[#found][1]
    local room = math.floor((MOST_BYTES - bytes) / largest)
    page = math.max(1, math.min(2 * page, LARGEST_PAGE, most - looked_at, room))
  end
  return old, foreign, string.sub(from, 2)
end
local old, foreign, next_id = find_old_letters(dead_letter, after)
-- To bound the bodies read, discarded dead letters wait for a call that finds no dead letter to delete.
local old_discarded = {}
if #old == 0 and next_id == '' and discarded and not find_foreign(state, discarded, group) then
  old_discarded = find_old_letters(discarded, '')
end

-- From here on it writes.
local letters, last = #old, ''
if letters > 0 then
  redis.call('XDEL', dead_letter, unpack(old))
end
if #old_discarded > 0 then
  redis.call('XDEL', discarded, unpack(old_discarded))
end
local records = expire_records(ledger, first_kept()) + expire_records(worker_ledger, first_kept())
if letters > 0 then
  local left = foreign == 0 and after == '' and see_stream(dead_letter)
  last = left and (left['first-id'] and id_before(left['first-id']) or left['last-generated-id']) or old[letters]
  redis.call('XADD', ledger, '*', unpack(ledger_event('letters-expired', {
    count = text(letters), last_id = last,
  })))
end
local more = (next_id ~= '' or letters + #old_discarded + records > 0) and 1 or 0
return { 'done', letters, last, records, #old_discarded, has_discarded, more, next_id, foreign }
