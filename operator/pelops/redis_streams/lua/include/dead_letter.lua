-- include: entry
-- include: letter_fields
-- A dead letter has the user's fields of the entry, then LETTER_FIELDS, which pelops/domain/records/ledger.py
-- declares.

local WIDEST = 3900 -- pairs; a call from Lua has 7,999 arguments at most

-- Add a dead letter. Returns its ID, or an error. `letter` has: stream, group, consumer, deliveries,
-- retries, reason, error, delivered_ms, now_ms. The table `fields` changes: only its first `keep` items stay.
local function add_dead_letter(key, root, fields, keep, prefix, letter)
  for i = #fields, keep + 1, -1 do
    fields[i] = nil
  end
  local values = {
    original_id = root, stream = letter.stream, group = letter.group, consumer = letter.consumer,
    delivery_count = text(letter.deliveries), retry_count = text(letter.retries),
    reason = letter.reason, error = letter.error, delivered_ms = text(letter.delivered_ms),
    dead_lettered_ms = text(letter.now_ms),
  }
  for i, name in ipairs(LETTER_FIELDS) do
    fields[keep + 2 * i - 1] = prefix .. name
    fields[keep + 2 * i] = values[name]
  end
  return redis.pcall('XADD', key, '*', unpack(fields))
end
