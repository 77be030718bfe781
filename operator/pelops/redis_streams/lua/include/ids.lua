-- include: entry
-- Entry IDs are text here, because both halves have 64 bits, more than a Lua number holds.

local function is_id(id)
  local ms, seq = string.match(id or '', '^(%d+)-(%d+)$')
  local function fits(digits)
    return #digits < 20 or (#digits == 20 and digits <= '18446744073709551615')
  end
  return ms ~= nil and fits(ms) and fits(seq)
end

local function first_of(a, b)
  return comes_before(b, a) and b or a
end

local function last_of(a, b)
  return comes_before(b, a) and a or b
end

-- The next greater ID. The greatest possible ID is returned unchanged.
local function id_after(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  local most = '18446744073709551615'
  local function one_more(digits)
    local head, digit, nines = string.match(digits, '^(%d-)([0-8]?)(9*)$')
    digit = digit == '' and '1' or string.format('%d', string.byte(digit) - string.byte('0') + 1)
    return head .. digit .. string.rep('0', #nines)
  end
  if seq ~= most then
    return ms .. '-' .. one_more(seq)
  end
  return ms == most and id or one_more(ms) .. '-0'
end

-- The next smaller ID. 0-0 is returned unchanged.
local function id_before(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  local function one_less(digits)
    local zeros = #string.match(digits, '0*$')
    local at = #digits - zeros
    local digit = string.format('%d', string.byte(digits, at) - string.byte('1'))
    local less = string.sub(digits, 1, at - 1) .. digit .. string.rep('9', zeros)
    return (string.gsub(less, '^0+(%d)', '%1'))
  end
  if not string.find(seq, '^0+$') then
    return ms .. '-' .. one_less(seq)
  end
  if string.find(ms, '^0+$') then
    return '0-0'
  end
  return one_less(ms) .. '-18446744073709551615'
end
