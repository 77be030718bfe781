-- Append entries to a stream once, however often the same call comes.
--
-- KEYS  stream, tokens                        (same hash tag)
-- ARGV  token, digest, ttl_s, trimming, threshold, then for each entry: n, n names and values
--       trimming is MAXLEN, MINID or empty.
-- Returns  appended | repeated | changed
-- Repeats safely: the token says that it has been done, and the digest that it was the same.

local token, digest, ttl_s, trimming, threshold = unpack(ARGV, 1, 5)

local known = redis.call('HGET', KEYS[2], token)
if known then
    return known == digest and 'repeated' or 'changed'
end

local position = 6
while position <= #ARGV do
    local last = position + tonumber(ARGV[position])
    redis.call('XADD', KEYS[1], '*', unpack(ARGV, position + 1, last))
    position = last + 1
end

redis.call('HSET', KEYS[2], token, digest)
redis.call('EXPIRE', KEYS[2], ttl_s)
if trimming ~= '' then
    redis.call('XTRIM', KEYS[1], trimming, '~', threshold)
end
return 'appended'
