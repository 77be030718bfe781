-- include: ids
-- Fields of the state about redrives.
--   redrive:running       '<uid> <ms> <name>' of the redrive that runs; <ms> is when it last wrote.
--   redrive:<uid>:until   the last ID of the source when it started; dead letters after it are not moved.
--   redrive:<uid>:cursor  entries up to this ID were handled.
--   redrive:<uid>:started_ms, :moved_ms  when it started, and when it last moved a dead letter.
--   redrive:<uid>:moved, :skipped  how many dead letters; skipped as 'reason=count' for each reason.
--   redrive:<uid>:bucket  '<thousandths of dead letters> <ms>': how many its rate allowed at that time.
--   redrive:<uid>:first, :last  IDs of its first and last copy.
--   redrive:<uid>:requeued  total:requeued when it started.
--   redrive:<uid>:look    the last comparison of the copies that exist with those that were made.
--   redrive:<uid>:seen, :failed, :gone  dead letters up to the ID `seen` were read. Of these, `failed` are
--                         its copies that failed again, and `gone` have no body and may be its copies.

local REDRIVE_FIELDS = {
  'until', 'cursor', 'started_ms', 'moved_ms', 'moved', 'skipped', 'bucket', 'first', 'last', 'requeued',
  'seen', 'failed', 'gone', 'look',
}
local GIVES_WAY_MS = 300000 -- after so long without a write of the running redrive, another may run
local RUNNING = 'redrive:running'

-- A number from the state; 0 if it is missing or damaged.
local function number_or_zero(digits)
  return string.find(digits or '', '^%d+$') and #digits <= 15 and tonumber(digits) or 0
end

-- The record of a redrive by the names of REDRIVE_FIELDS; nil if it does not exist or is damaged.
local function read_redrive(state, uid)
  local names = {}
  for i, name in ipairs(REDRIVE_FIELDS) do
    names[i] = 'redrive:' .. uid .. ':' .. name
  end
  local held, record = redis.call('HMGET', state, unpack(names)), {}
  for i, name in ipairs(REDRIVE_FIELDS) do
    record[name] = held[i] or ''
  end
  if not is_id(record['until']) or not is_id(record.cursor) then
    return nil
  end
  return record
end

-- Write fields of the record, and mark the redrive as the one that runs.
local function write_redrive(state, uid, name, now, changed)
  local words = { RUNNING, uid .. ' ' .. text(now) .. ' ' .. name }
  for field, value in pairs(changed) do
    words[#words + 1] = 'redrive:' .. uid .. ':' .. field
    words[#words + 1] = value
  end
  redis.call('HSET', state, unpack(words))
end

-- The uid and the name of another redrive that runs; nil if there is none.
local function find_other_redrive(state, uid, now)
  local running = redis.call('HMGET', state, RUNNING)[1]
  local other, heard_ms, name = string.match(running or '', '^(%S+) (%d+) (.*)$')
  if not other or other == uid or #heard_ms > 15 then
    return nil
  end
  -- A time in the future was written before the clock was set back, and is ignored.
  local age = now - tonumber(heard_ms)
  return age >= 0 and age < GIVES_WAY_MS and other or nil, name
end

-- The record as scripts return it.
local function render_redrive(record, now)
  return {
    text(now), text(number_or_zero(record.started_ms)), record['until'], record.cursor,
    number_or_zero(record.moved), record.skipped, record.moved_ms,
  }
end
