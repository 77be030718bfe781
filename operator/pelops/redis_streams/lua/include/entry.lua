-- include: deliveries
-- An entry has the user's fields. A copy made by recovery has two more at its end: <prefix>original_id, a
-- valid ID smaller than the copy's own, then <prefix>retry_count, 1 to 6 digits.

-- The maximum of maxRetries, plus one. Only a producer can write a larger count. It is capped, because a
-- count of more than six digits would not be recognized in the next copy.
local MOST_RETRIES = 1001

local function comes_before(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  if not a_ms or #a_ms > 20 or #a_seq > 20 then
    return false
  end
  -- Both halves have 64 bits, more than a Lua number holds, so they are compared as text of equal length.
  local function pad(digits)
    return string.rep('0', 20 - #digits) .. digits
  end
  return pad(a_ms) .. pad(a_seq) < pad(b_ms) .. pad(b_seq)
end

-- Returns the ID of the first entry in the chain of copies, the number of failed attempts, and how many
-- items of `fields` are the user's.
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

-- Whether the group's ownership record, of which `recorded` is the uid, is missing or names another
-- resource. Always false in a dry run: it changes nothing, and its caller has checked for conflicts.
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

-- Call `look`, and return its result and the server's time to which idle times in it refer. In Redis 7.0
-- the clock advances during a script, and a delivery time that is wrong by 1 ms could pass a cutoff. So the
-- call is repeated until the time before and after it is the same.
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

-- An integer as text, without the exponent that tostring writes. Results are cached, because entries that
-- were delivered together have the same numbers.
local texts = {}
local function text(number)
  local known = texts[number]
  if not known then
    known = string.format('%.0f', number)
    texts[number] = known
  end
  return known
end

-- Return a verdict if the ACL forbids a command on a key. Otherwise nil, also if `key` is nil, or if this
-- server cannot check it: then the command itself fails.
local function find_forbidden(command, key, ...)
  if key and redis.acl_check_cmd and not redis.acl_check_cmd(...) then
    return { 'no-permission', command, key }
  end
  return nil
end

-- Return a verdict if a key has another type than `kind`; nil if it has that type or does not exist.
local function find_wrong_type(key, kind)
  local found = key and redis.call('TYPE', key).ok or 'none'
  if found ~= 'none' and found ~= kind then
    return { 'wrong-type', key, found }
  end
  return nil
end

-- Whether a reply is an error that means that the server refuses all writes now, and not only this one:
-- OOM, READONLY, NOREPLICAS and similar ones.
local function refuses_all(reply)
  local code = type(reply) == 'table' and string.match(reply.err or '', '^%-?(%u+) ')
  return code and code ~= 'ERR'
end

-- Return a verdict if copies must not be written to a stream, else nil.
local function find_obstacle(target, group, allows_others)
  if redis.call('TYPE', target).ok == 'none' then
    return not dry_run and { 'no-group', target } or nil -- a real scan would create it first
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
  -- A copy below the group's position would never be delivered.
  if comes_before(generated, delivered) then
    return { 'position-ahead', delivered, generated }
  end
  return nil
end
