-- include: entry
-- include: stream
-- include: ahead
-- Set the number of entries that a group has read, if the server lost count and the right number is certain.
--
-- KEYS     source, state  (same slot; the stream itself or the group's retry stream)
-- ARGV     group, uid
-- READS    type source state; hmget state; xinfo|stream source; xinfo|groups source; xpending
--          source; xrange! source
-- WRITES   xgroup|setid source
-- USER     operator for scaling
-- Costs  as much as observe_group.lua with is_deep.
-- Neither the position nor pending entries change: the script sets the position that it has read itself.
-- The number is also set for a group at the end of the stream, otherwise its lag would be unknown after the
-- next entry.
-- Repeats safely: the second run finds the right number.

local refusal = find_refusal()
if refusal then
  return refusal
end
if redis.call('HMGET', state, 'owner:uid')[1] ~= uid then
  return { 'not-owner' }
end
local seen = see_stream(source)
local ours = seen and see_group(source, group)
if not ours then
  return { 'no-group', source }
end

local position, added = ours['last-delivered-id'], seen['entries-added']
local deleted = seen['max-deleted-entry-id'] or '0-0'
local is_counted_on = deleted == '0-0' or comes_before(deleted, position)
if not is_counted_on or comes_before(seen['last-generated-id'], position) then
  return { 'unsure' }
end
local remaining, is_all = count_ahead(source, seen, position, DEEP, DEEP * 1024)
if not remaining or not is_all or remaining > added then
  return { 'unsure' }
end
local read = added - remaining
if ours['lag'] == remaining and (ours['entries-read'] == read or remaining > 0) then
  return { 'intact' }
end
redis.call('XGROUP', 'SETID', source, group, position, 'ENTRIESREAD', text(read))
return { 'repaired', text(remaining) }
