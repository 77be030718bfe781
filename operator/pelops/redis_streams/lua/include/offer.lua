-- include: entry
-- Records of offers that are not known to be taken. Each is a field offer:<number> of the state, and its
-- number is from offers:first to offers:last. Its value has three lines:
--   'first_ms due_ms times before_ms trigger announced', the IDs of the entries, and their owner.
--   first_ms    when it was first made.
--   due_ms      when it may be repeated.
--   times       how many times it was made.
--   before_ms   the owner has held these entries since before this time.
--   trigger     the trigger of the scan that made it.
--   announced   ID of its entry in the offer stream; '-' if XNACK gave the entries back to the group:
--               then they have no owner, and the last line is empty

local function number_of(state, field, otherwise)
  return tonumber(redis.call('HGET', state, field) or '') or otherwise
end

-- Write an offer under `number`, or as a new last one if `number` is nil.
local function write_offer(state, offer, number)
  local last = number_of(state, 'offers:last', 0)
  number = number or last + 1
  local words = {
    text(offer.first), text(offer.due), text(offer.times), text(offer.before), offer.trigger, offer.announced,
  }
  redis.call('HSET', state, 'offers:last', text(math.max(last, number)), 'offer:' .. text(number),
    table.concat(words, ' ') .. '\n' .. table.concat(offer.ids, ' ') .. '\n' .. offer.owner)
  if not redis.call('HGET', state, 'offers:first') then
    redis.call('HSET', state, 'offers:first', text(number))
  end
end

-- The offer of this number; nil if it does not exist or is damaged.
local function read_offer(state, number)
  local found = redis.call('HGET', state, 'offer:' .. text(number))
  local first, due, times, before, trigger, announced, list, owner =
    string.match(found or '', '^(%d+) (%d+) (%d+) (%d+) (%S+) (%S+)\n([^\n]*)\n(.*)$')
  if not first then
    return nil
  end
  local ids = {}
  for id in string.gmatch(list, '%d+%-%d+') do
    ids[#ids + 1] = id
  end
  return {
    first = tonumber(first), due = tonumber(due), times = tonumber(times), before = tonumber(before),
    trigger = trigger, announced = announced, ids = ids, owner = owner,
  }
end

-- Add an offer to the offer stream. Returns the ID of its entry there, or an error.
local function announce(offer_stream, owner, before, ids)
  return redis.pcall('XADD', offer_stream, 'MAXLEN', '~', 1000, '*', 'consumer', owner,
    'before', text(before), 'ids', table.concat(ids, ' '))
end
