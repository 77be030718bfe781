-- include: entry
-- include: stream
-- include: ahead
-- Look at a stream, one of its groups and our keys beside it, all at one instant. Writes nothing.
--
-- KEYS  stream, dead_letter, ledger, state, then further streams that have a group of the same name
--       (same slot; all exist once provisioned, since a slot migration answers TRYAGAIN for a declared
--       key that is absent)
-- ARGV  group, what to look at besides (1: count deeply whatever lag is reported; 2: consumers; 3: both;
--       0: neither), then fields of the state
-- Returns  {types of the keys},
--          {server time: seconds, microseconds},
--          {XINFO STREAM without its entries} or false,
--          {XINFO GROUPS of our group alone, lowest pending ID or false,
--           {entries after its position, 1 when these are all or 0, the first one's ID or false}
--           or false when XRANGE is forbidden,
--           consumers that hold pending entries, or false when it has too many consumers}
--          or false,
--          length of dead_letter,
--          the fields of the state, each or false,
--          for each further stream, as for the first: {stream or false, group or false},
--          {{consumer, pending, idle_ms} ...}, or false: not asked for, forbidden, or more than 200
-- Costs  XINFO GROUPS is linear in the stream's groups, HMGET in the fields, counting in at most 80
--        entries or 80 KB, and 500 entries or 500 KB where the reported lag cannot be true or deep
--        is asked for; XPENDING is linear in the group's consumers, of which there are 500 at most
--        where it is called, and XINFO CONSUMERS in 200 at most; all else is constant. Nothing is
--        linear in the stream's length.
-- Repeats safely: it only reads.

local types = {}
for i, key in ipairs(KEYS) do
  types[i] = redis.call('TYPE', key).ok
end

local function count(key, stream, group)
  local lag = group['lag'] or -1
  local is_deep = tonumber(ARGV[2]) % 2 == 1 or lag < 0 or lag > stream['length']
  local limit = is_deep and DEEP or 64
  local counted, is_all, first =
    count_ahead(key, stream, group['last-delivered-id'], limit, limit * 1024)
  return counted and { counted, is_all and 1 or 0, first or false } or false
end

local function count_holding(key, group)
  if group['pending'] == 0 then
    return 0
  end
  return group['consumers'] <= 500 and #redis.call('XPENDING', key, ARGV[1])[4]
end

local function look(key, kind)
  local seen = kind == 'stream' and see_stream(key)
  if not seen then
    return false, false
  end
  local stream = {
    seen['length'], seen['last-generated-id'], seen['first-id'] or false, seen['entries-added'],
    seen['groups'], seen['max-deleted-entry-id'] or false,
  }
  local ours = see_group(key, ARGV[1])
  return stream, ours and {
    ours['last-delivered-id'], ours['pending'], ours['lag'] or false, ours['consumers'],
    ours['entries-read'] or false, ours['lowest-pending'] or false, count(key, seen, ours),
    count_holding(key, ours),
  } or false
end

local stream, group = look(KEYS[1], types[1])
local further = {}
for i = 5, #KEYS do
  further[#further + 1] = { look(KEYS[i], types[i]) }
end

local consumers = false
-- Asked before: a command that the ACL refuses would stand in its log each time.
local may_list = not redis.acl_check_cmd or redis.acl_check_cmd('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if tonumber(ARGV[2]) >= 2 and group and group[4] <= 200 and may_list then
  local found = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
  if not found.err then
    consumers = {}
    for i, reply in ipairs(found) do
      local seen = pairs_of(reply)
      consumers[i] = { seen['name'], seen['pending'], seen['idle'] }
    end
  end
end

return {
  types, redis.call('TIME'), stream, group,
  types[2] == 'stream' and redis.call('XLEN', KEYS[2]) or 0,
  types[4] == 'hash' and redis.call('HMGET', KEYS[4], unpack(ARGV, 3)) or {},
  further,
  consumers,
}
