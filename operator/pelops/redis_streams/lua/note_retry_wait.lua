-- include: entry
-- include: stream
-- include: ahead
-- Record which copy waits first in the retry stream, and the position of the group in the stream.
--
-- KEYS     stream, retry, state  (same slot)
-- ARGV     group, uid, notes: flag (else what was noted is forgotten)
-- READS    type stream retry state; time; hmget state; xinfo|stream retry; xinfo|groups stream retry;
--          xpending stream retry; xrange retry
-- WRITES   hset state; hdel state
-- USER     operator for recovery
-- RETURNS  noted | known | forgotten | not-owner | no-group key | wrong-type key, type
--          | no-permission command, key
-- Costs  counting at most 64 entries or 64 KB of them.
-- Repeats safely: a copy that was noted already keeps the time and the position of its first note.
-- Losing the note makes an alarm later.

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'retry:waits')
if held[1] ~= uid then
  return { 'not-owner' }
end

local main = see_group(stream, group)
local seen = see_stream(retry)
local ours = seen and see_group(retry, group)
if not main or not ours then
  return { 'no-group', main and retry or stream }
end
local _, _, first = count_ahead(retry, seen, ours['last-delivered-id'], 1, 1024)
if not notes or not first then
  redis.call('HDEL', state, 'retry:waits')
  return { 'forgotten' }
end
if held[2] and string.sub(held[2], 1, #first + 1) == first .. ' ' then
  return { 'known' }
end
redis.call('HSET', state, 'retry:waits',
  first .. ' ' .. main['last-delivered-id'] .. ' ' .. text(server_ms()))
return { 'noted' }
