-- include: entry
-- include: stream
-- include: ahead
-- Observe a stream, one of its groups and the group's own keys at one instant. Writes nothing.
--
-- KEYS     stream, dead_letter, ledger, state, dead_letter_owner, further... (streams that have a group
--          of the same name; same slot. All keys exist after provisioning, because during a slot migration
--          the server answers TRYAGAIN for a declared key that is absent)
-- ARGV     group, is_deep: flag (count deeply, whatever lag the server reports), with_consumers: flag,
--          with_letters: flag (read the first dead letter), fields... (of the state)
-- READS    type stream dead_letter ledger state dead_letter_owner further; time;
--          xinfo|stream stream further; xinfo|groups stream dead_letter further; xpending stream further; [xrange stream further];
--          [xinfo|consumers stream for recovery cleanup]; xlen dead_letter;
--          [xrange dead_letter];
--          hmget state dead_letter_owner
-- WRITES   none
-- USER     operator
-- Costs  XINFO GROUPS is linear in the stream's groups, and HMGET in the fields. At most 80 entries or
--        80 KB are counted; 500 entries or 500 KB if the reported lag cannot be true or is_deep is set.
--        XPENDING is linear in the group's consumers, and is called for 500 at most; XINFO CONSUMERS for
--        200 at most. All else is constant. Nothing is linear in the stream's length.
-- Repeats safely: it writes nothing.

local types = {}
for i, key in ipairs({ stream, dead_letter, ledger, state, dead_letter_owner }) do
  types[i] = redis.call('TYPE', key).ok
end
for i, key in ipairs(further) do
  types[5 + i] = redis.call('TYPE', key).ok
end

local function count(key, seen, ours)
  local lag = ours['lag'] or -1
  local limit = (is_deep or lag < 0 or lag > seen['length']) and DEEP or 64
  local counted, is_all, first =
    count_ahead(key, seen, ours['last-delivered-id'], limit, limit * 1024)
  return counted and { counted, is_all and 1 or 0, first or false } or false
end

local function count_holding(key, ours)
  if ours['pending'] == 0 then
    return 0
  end
  return ours['consumers'] <= 500 and #redis.call('XPENDING', key, group)[4]
end

local function look(key, kind)
  local seen = kind == 'stream' and see_stream(key)
  if not seen then
    return false, false
  end
  local told = {
    seen['length'], seen['last-generated-id'], seen['first-id'] or false, seen['entries-added'],
    seen['groups'], seen['max-deleted-entry-id'] or false,
  }
  local ours = see_group(key, group)
  return told, ours and {
    ours['last-delivered-id'], ours['pending'], ours['lag'] or false, ours['consumers'],
    ours['entries-read'] or false, ours['lowest-pending'] or false, count(key, seen, ours),
    count_holding(key, ours), ours['lowest-idle'] or false,
  } or false
end

local main, main_group = look(stream, types[1])
local sides = {}
for i, key in ipairs(further) do
  sides[i] = { look(key, types[5 + i]) }
end

local consumers = false
-- Checked first, because the server logs each command that the ACL refuses.
local may_list = not redis.acl_check_cmd or redis.acl_check_cmd('XINFO', 'CONSUMERS', stream, group)
if with_consumers and main_group and main_group[4] <= 200 and may_list then
  local found = redis.pcall('XINFO', 'CONSUMERS', stream, group)
  if not found.err then
    consumers = {}
    for i, reply in ipairs(found) do
      local seen = pairs_of(reply)
      consumers[i] = { seen['name'], seen['pending'], seen['idle'] }
    end
  end
end

local first_letter = false
if with_letters and types[2] == 'stream' then
  local found = redis.pcall('XRANGE', dead_letter, '-', '+', 'COUNT', 1)
  first_letter = not found.err and found[1] and found[1][1] or false
end

return {
  types, redis.call('TIME'), main, main_group,
  types[2] == 'stream' and redis.call('XLEN', dead_letter) or 0,
  types[5] == 'hash' and redis.call('HMGET', dead_letter_owner, 'stream', 'group') or { false, false },
  types[2] == 'stream' and #redis.call('XINFO', 'GROUPS', dead_letter) or 0,
  types[4] == 'hash' and redis.call('HMGET', state, unpack(fields)) or {},
  sides,
  consumers,
  first_letter,
}
