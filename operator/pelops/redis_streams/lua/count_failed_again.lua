-- include: entry
-- include: ids
-- include: own_letters
-- include: body
-- include: redrive
-- Count the copies of a redrive that became dead letters again, from where the last call stopped.
--
-- KEYS     dead_letter, state  (same slot)
-- ARGV     uid, stream, group, redrive (uid of the StreamRedrive), name, most: number,
--          look_before (the comparison of copies that the caller read, or ''), look (the new one, or '')
-- READS    type dead_letter state; time; hmget state; xrange dead_letter
-- WRITES   hset state
-- USER     operator
-- Costs  linear in the dead letters that are read: `most` of them and 256 KiB, but at least one.
-- Repeats safely: no replica counts a dead letter again that was read before. If two replicas continue
-- from the same comparison, only the first new one is stored.

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'total:requeued')
if is_not_owner(held[1], uid) then
  return { 'not-owner' }
end
local record = read_redrive(state, redrive)
if not record then
  return { 'not-started' }
end

local mark, own_retry = name .. '/' .. redrive, retry_beside(state)
local seen = is_id(record.seen) and record.seen or record['until']
local failed, gone = number_or_zero(record.failed), number_or_zero(record.gone)
local visited, bytes, page, largest, is_end = 0, 0, 1, 1, false
while not is_end and visited < most and bytes < MOST_BYTES do
  local found = redis.call('XRANGE', dead_letter, '(' .. seen, '+', 'COUNT', page)
  for _, entry in ipairs(found) do
    local id, fields = entry[1], entry[2]
    local size = size_of_body(fields)
    bytes, largest, visited, seen = bytes + size, math.max(largest, size), visited + 1, id
    local named, keep, prefix = read_letter(fields)
    if named and names_group(named, stream, group, own_retry) and keep >= 4
      and fields[keep - 3] == prefix .. 'redrive' and fields[keep - 2] == mark then
      failed = failed + 1
    elseif named and keep == 0 and named.reason == 'PayloadGone' and names_group(named, stream, group, own_retry)
      and record.first ~= '' and is_id(named.original_id) and not comes_before(named.original_id, record.first)
      and not comes_before(record.last, named.original_id) then
      gone = gone + 1
    end
  end
  is_end = #found < page
  page = math.max(1, math.min(2 * page, 50, most - visited, math.floor((MOST_BYTES - bytes) / largest)))
end

-- From here on it writes.
if visited > 0 then
  local field = 'redrive:' .. redrive .. ':'
  redis.call('HSET', state, field .. 'seen', seen, field .. 'failed', text(failed), field .. 'gone', text(gone))
end
if look ~= '' and look_before == record.look then
  redis.call('HSET', state, 'redrive:' .. redrive .. ':look', look)
  record.look = look
end
local requeued = math.max(0, number_or_zero(held[2]) - number_or_zero(record.requeued))
return {
  'done', failed, gone, is_end and 0 or 1, requeued, record.first, record.last, record.look,
  render_redrive(record, server_ms()),
}
