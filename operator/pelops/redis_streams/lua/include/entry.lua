-- include: deliveries
-- An entry's own fields, and the two that recovery adds at its end: <prefix>original_id, a valid ID
-- smaller than the entry's own, then <prefix>retry_count, 1 to 6 digits. All else is the user's.

-- As many failed attempts as maxRetries allows, and one. Only a producer can write a larger count; one more
-- than its six digits hold would no longer be taken for ours.
local MOST_RETRIES = 1001

local function comes_before(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  if not a_ms or #a_ms > 20 or #a_seq > 20 then
    return false
  end
  -- Both halves are 64 bit, more than a Lua number holds: compared as text of equal length.
  local function pad(digits)
    return string.rep('0', 20 - #digits) .. digits
  end
  return pad(a_ms) .. pad(a_seq) < pad(b_ms) .. pad(b_seq)
end

-- The ID of the first entry in a chain of copies, the failed attempts so far, and how many of the
-- fields are the user's.
local named, root_name, count_name
local function read_marks(id, fields, prefix)
  if named ~= prefix then
    named, root_name, count_name = prefix, prefix .. 'original_id', prefix .. 'retry_count'
  end
  local n = #fields
  if n >= 4 and fields[n - 1] == count_name and fields[n - 3] == root_name then
    local count, root = fields[n], fields[n - 2]
    if #count <= 6 and string.find(count, '^%d+$') and comes_before(root, id) then
      return root, math.min(tonumber(count), MOST_RETRIES), n - 4
    end
  end
  return id, 0, n
end

-- Whether another resource acts on the group, by the record of its owner, or none is known to. A dry run
-- changes nothing, so it needs no record: whoever starts it has looked for a conflict before.
local function is_not_owner(recorded, uid)
  return recorded ~= uid and not dry_run
end

local function is_pending(stream, group, id)
  return bound_deliveries(redis.call('XPENDING', stream, group, id, id, 1))[1]
end

local function server_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- What `look` answers, and the server's time at that: idle times are as of then. Redis 7.0 lets the
-- clock go on during a script, and a delivery time that is a millisecond off would pass a cutoff.
local function look_in_time(look)
  local before, found, now = server_ms(), nil, nil
  for _ = 1, 20 do
    found, now = look(), server_ms()
    if now == before then
      break
    end
    before = now
  end
  return found, now
end

-- A number of milliseconds as text; Lua's own would turn to an exponent. Entries that were
-- delivered together have the same numbers.
local texts = {}
local function text(number)
  local known = texts[number]
  if not known then
    known = string.format('%.0f', number)
    texts[number] = known
  end
  return known
end

-- That the ACL forbids a command on a key, as a verdict. nil when it does not, when there is no
-- key, or when this server cannot tell: the command itself tells then.
local function find_forbidden(command, key, ...)
  if key and redis.acl_check_cmd and not redis.acl_check_cmd(...) then
    return { 'no-permission', command, key }
  end
  return nil
end

-- That a key holds something else, as a verdict; nil when it does not, or is not there.
local function find_wrong_type(key, kind)
  local found = key and redis.call('TYPE', key).ok or 'none'
  if found ~= 'none' and found ~= kind then
    return { 'wrong-type', key, found }
  end
  return nil
end

-- Whether an error means that the server takes no writes now, not that it refuses this one: OOM,
-- READONLY, NOREPLICAS and their like.
local function refuses_all(reply)
  local code = type(reply) == 'table' and string.match(reply.err or '', '^%-?(%u+) ')
  return code and code ~= 'ERR'
end

-- Why no copy may be written to a stream, as a verdict; nil when it may.
local function find_obstacle(target, group, allows_others)
  if redis.call('TYPE', target).ok == 'none' then
    return not dry_run and { 'no-group', target } or nil -- it would be made before the scan
  end
  local groups, ours = redis.call('XINFO', 'GROUPS', target), nil
  for _, reply in ipairs(groups) do
    if reply[2] == group then
      ours = reply
    end
  end
  if not ours then
    return not dry_run and { 'no-group', target } or nil
  end
  if #groups > 1 and not allows_others then
    return { 'would-duplicate', text(#groups) }
  end
  local seen, delivered, generated = redis.call('XINFO', 'STREAM', target), nil, nil
  for i = 1, #ours, 2 do
    if ours[i] == 'last-delivered-id' then
      delivered = ours[i + 1]
    end
  end
  for i = 1, #seen, 2 do
    if seen[i] == 'last-generated-id' then
      generated = seen[i + 1]
    end
  end
  -- A copy behind the group's position would never be delivered.
  if comes_before(generated, delivered) then
    return { 'position-ahead', delivered, generated }
  end
  return nil
end
