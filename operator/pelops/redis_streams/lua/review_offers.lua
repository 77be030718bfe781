-- include: entry
-- include: stream
-- include: offer
-- Count the offered entries that workers have claimed, and repeat offers that no worker has taken.
--
-- KEYS     source, offer_stream, state  (same slot)
-- ARGV     group, uid, first: number, last: number (of the offers to review; '': all),
--          most: number (entries to review),
--          pause_ms: number (before the first repetition; twice as long before each further one),
--          longest_ms: number (the longest pause), withdraws: flag (delete all offers)
-- READS    type source offer_stream state; time; hget state; xpending source offer_stream;
--          xinfo|stream offer_stream; xinfo|groups offer_stream
-- WRITES   xadd offer_stream; hset state; hdel state; hincrby state
-- USER     operator for recovery
-- Costs  linear in `most`, but it reviews at least one whole offer; reads no body of the source.
-- An entry is taken if its owner no longer holds it as the offer describes: it was claimed, acknowledged, or
-- delivered again. An entry whose body was deleted does not count, because the scan records it. An offered
-- entry is recovered only when it is taken, so the total is counted here.
-- A repetition writes nothing to the ledger, and nothing to the offer stream while the former announcement
-- is unread. The repeated offer gets the highest number, so that offers:first can advance past its old one.
-- Repeats safely: a counted entry is no longer in an offer.

local refusal = find_refusal()
if refusal then
  return refusal
end
if is_not_owner(redis.call('HGET', state, 'owner:uid'), uid) then
  return { 'not-owner' }
end
if redis.pcall('XPENDING', source, group, '-', '+', 1).err then
  return { 'no-group', source }
end

local now = server_ms()
local lowest = number_of(state, 'offers:first', 1)
local from, to = math.max(first or lowest, lowest), last or number_of(state, 'offers:last', 0)

-- Whether an announcement is in the offer stream and no worker has read it.
local stream, readers
local function is_unread(announced)
  if stream == nil then
    stream = see_stream(offer_stream) or false
    readers = stream and see_group(offer_stream, group)
  end
  return readers and stream['first-id'] and comes_before(readers['last-delivered-id'], announced)
    and not comes_before(announced, stream['first-id'])
end

-- Returns the IDs that the owner still holds as offered, and how many others were taken. Records try:<id> of
-- entries that are no longer on offer lose the word `offered`, because after another delivery the entries may
-- fail again.
local function sort_out(offer)
  local left, count = {}, 0
  for _, id in ipairs(offer.ids) do
    local entry, at = look_in_time(function()
      return is_pending(source, group, id)
    end)
    local is_left = entry and entry[2] == offer.owner
      and (offer.announced == '-' or at - entry[3] < offer.before)
    if is_left then
      left[#left + 1] = id
    elseif entry or redis.call('HDEL', state, 'gone:' .. id) == 0 then
      count = count + 1
    end
    if entry and (withdraws or not is_left) then
      local tried = redis.call('HGET', state, 'try:' .. id)
      local known, delivered = string.match(tried or '', '^(%d+ %d+) (%d+) offered$')
      if known then
        redis.call('HSET', state, 'try:' .. id, known .. ' ' .. (is_left and delivered or '0'))
      end
    end
  end
  return left, count
end

local function repeat_offer(offer)
  if offer.announced ~= '-' and not is_unread(offer.announced) then
    local announced = announce(offer_stream, offer.owner, offer.before, offer.ids)
    if type(announced) ~= 'string' then
      return false -- out of memory, for example: the next scan tries again
    end
    offer.announced = announced
  end
  offer.due = now + math.min(pause_ms * 2 ^ math.min(offer.times, 40), longest_ms)
  offer.times = offer.times + 1
  return true
end

local taken, looked, untaken, oldest, due, repeated, number = {}, 0, 0, nil, nil, 0, from
local count = 0
while number <= to and (looked == 0 or looked < most) do
  local offer = read_offer(state, number)
  local name = 'offer:' .. text(number)
  looked = looked + 1
  if not offer then
    redis.call('HDEL', state, name)
  else
    looked = looked + #offer.ids
    local all, left, some = #offer.ids, sort_out(offer)
    if some > 0 then
      taken[offer.trigger] = (taken[offer.trigger] or 0) + some
      count = count + some
    end
    offer.ids = left
    if withdraws or #left == 0 then
      redis.call('HDEL', state, name)
    elseif offer.due <= now and repeat_offer(offer) then
      repeated = repeated + 1
      redis.call('HDEL', state, name)
      write_offer(state, offer)
    elseif #left < all then
      write_offer(state, offer, number)
    end
    if not withdraws and #left > 0 then
      untaken = untaken + #left
      oldest = math.min(oldest or offer.first, offer.first)
      due = math.min(due or offer.due, offer.due)
    end
  end
  number = number + 1
end
if from == lowest and number > lowest then
  -- Numbers below the first offer that is left are not read again.
  while lowest < number and not redis.call('HGET', state, 'offer:' .. text(lowest)) do
    lowest = lowest + 1
  end
  if lowest > from then
    redis.call('HSET', state, 'offers:first', text(lowest))
  end
end
if count > 0 then
  redis.call('HINCRBY', state, 'total:released', count)
  redis.call('HSET', state, 'offers:taken_ms', text(now))
end

local answer = {
  'done', text(now), number <= to and text(number) or '', text(to), untaken, oldest and text(oldest) or '',
  due and text(due) or '', repeated, redis.call('HGET', state, 'offers:taken_ms') or '',
}
for trigger, entries in pairs(taken) do
  answer[#answer + 1] = { trigger, entries }
end
return answer
