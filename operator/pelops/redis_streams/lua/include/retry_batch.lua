-- include: entry
-- The retry batch, which has the suspects that are being retried, and the records of suspects.

-- Return a verdict if another resource owns the group, or the retry batch is not the one that the caller
-- read; else nil.
local function find_stale(state, uid, retry_batch)
  local held = redis.call('HMGET', state, 'owner:uid', 'chunk')
  if is_not_owner(held[1], uid) then
    return { 'not-owner' }
  end
  local present = held[2] or ''
  return present ~= retry_batch and { 'chunk-changed', present } or nil
end

-- Replace the retry batch by the IDs of `kept` and the new `members`, and return it. Records of resolved
-- IDs are deleted, otherwise the state would grow with every entry that failed once.
local function write_retry_batch(state, retry_batch, kept, resolved, members)
  local stay, after = {}, kept
  for id in string.gmatch(kept, '%S+') do
    stay[id] = true
  end
  for id in string.gmatch(resolved, '%S+') do
    redis.call('HDEL', state, 'try:' .. id)
  end
  for _, id in ipairs(members) do
    if not stay[id] then
      after = after == '' and id or after .. ' ' .. id
    end
  end
  if after ~= retry_batch then
    redis.call('HSET', state, 'chunk', after)
  end
  return dry_run and retry_batch or after
end

-- Record that entries of this owner failed together if they were delivered before `co_failed_ms`. A later
-- time replaces an earlier one.
local function write_co_failed(state, owner, co_failed_ms)
  local known = tonumber(redis.call('HGET', state, 'crowd:' .. owner) or '') or 0
  if tonumber(co_failed_ms) > known then
    redis.call('HSET', state, 'crowd:' .. owner, co_failed_ms)
  end
end
