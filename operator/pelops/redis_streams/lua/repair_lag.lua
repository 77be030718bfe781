-- include: entry
-- include: stream
-- include: ahead
-- Set the number of entries that a group has read, if the server lost count and the number is certain.
--
-- KEYS     source, state  (same slot; the stream itself or the group's retry stream)
-- ARGV     group, uid
-- READS    type source state; hmget state; xinfo|stream source; xinfo|groups source; xpending
--          source; xrange! source
-- WRITES   xgroup|setid source
-- USER     operator for scaling
-- RETURNS  repaired lag
--          | intact (the server's number is right already)
--          | unsure (too many entries to count, or one that was deleted lies at the position or
--          ahead of it: then the server believes no number)
--          | not-owner | no-group key | wrong-type key, type | no-permission command, key
-- Costs  as a deep look of observe_group.lua.
-- Neither the position nor what is pending changes, and the position that is set is the one that
-- was read in this very script. A group at the end is reported too: its lag would be unknown with
-- the next entry otherwise.
-- Repeats safely: a second run finds the number right.

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
