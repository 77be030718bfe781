-- include: ids
-- What the state has of redrives.
--   redrive:running       '<uid> <ms> <name>' of the one that runs, and when it was last heard of
--   redrive:<uid>:until   last ID of the source when it started: nothing after it is taken
--   redrive:<uid>:cursor  everything up to it was handled
--   redrive:<uid>:started_ms, :moved_ms  when it started, and when it moved a letter last
--   redrive:<uid>:moved, :skipped  how many; the second as 'reason=count' for each reason
--   redrive:<uid>:bucket  '<thousandths of letters> <ms>': what its rate allows, as of then
--   redrive:<uid>:first, :last  IDs of its first and last copy
--   redrive:<uid>:requeued  total:requeued when it started
--   redrive:<uid>:look    what is known of its copies, as of the last look at them
--   redrive:<uid>:seen, :failed, :gone  dead letters up to it were looked at, how many had failed again, and
--                         how many have no body and can be its copies

local REDRIVE_FIELDS = {
  'until', 'cursor', 'started_ms', 'moved_ms', 'moved', 'skipped', 'bucket', 'first', 'last', 'requeued',
  'seen', 'failed', 'gone', 'look',
}
local GIVES_WAY_MS = 300000 -- unheard of for so long, a redrive gives way to another
local RUNNING = 'redrive:running'

-- A number that the state holds; what is damaged counts as never written.
local function number_or_zero(digits)
  return string.find(digits or '', '^%d+$') and #digits <= 15 and tonumber(digits) or 0
end

-- The record by the names above; nil when there is none, or when it is damaged.
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

-- Write fields of the record, and that the redrive was heard of.
local function write_redrive(state, uid, name, now, changed)
  local words = { RUNNING, uid .. ' ' .. text(now) .. ' ' .. name }
  for field, value in pairs(changed) do
    words[#words + 1] = 'redrive:' .. uid .. ':' .. field
    words[#words + 1] = value
  end
  redis.call('HSET', state, unpack(words))
end

-- Another redrive that runs, as its uid and name; nil when none does.
local function find_other_redrive(state, uid, now)
  local running = redis.call('HMGET', state, RUNNING)[1]
  local other, heard_ms, name = string.match(running or '', '^(%S+) (%d+) (.*)$')
  if not other or other == uid or #heard_ms > 15 then
    return nil
  end
  -- A time in the future was written before the clock went back.
  local age = now - tonumber(heard_ms)
  return age >= 0 and age < GIVES_WAY_MS and other or nil, name
end

-- As scripts answer it.
local function render_redrive(record, now)
  return {
    text(now), text(number_or_zero(record.started_ms)), record['until'], record.cursor,
    number_or_zero(record.moved), record.skipped, record.moved_ms,
  }
end
