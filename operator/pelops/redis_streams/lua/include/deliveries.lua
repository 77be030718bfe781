-- Delivery counts. A server holds 64 bits of one, more than a Lua number: XCLAIM RETRYCOUNT and XNACK FATAL
-- set 2^63 - 1, and the delivery after that wraps to a negative number.

local MOST_DELIVERIES = 2 ^ 53 -- as in pelops/domain/ledger.py

-- Entries as XPENDING answers them, with counts that a Lua number holds: one beyond is MOST_DELIVERIES.
local function bound_deliveries(entries)
  for _, entry in ipairs(entries) do
    if entry[4] < 0 or entry[4] > MOST_DELIVERIES then
      entry[4] = MOST_DELIVERIES
    end
  end
  return entries
end
