-- Delivery counts have 64 bits on the server, more than a Lua number holds. XCLAIM RETRYCOUNT and XNACK
-- FATAL can set 2^63 - 1, and the delivery after that wraps to a negative number.

local MOST_DELIVERIES = 2 ^ 53 -- as in pelops/domain/records/ledger.py

-- Replace delivery counts beyond MOST_DELIVERIES, and negative ones, by MOST_DELIVERIES. `entries` are as
-- XPENDING returns them.
local function bound_deliveries(entries)
  for _, entry in ipairs(entries) do
    if entry[4] < 0 or entry[4] > MOST_DELIVERIES then
      entry[4] = MOST_DELIVERIES
    end
  end
  return entries
end
