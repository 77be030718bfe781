-- The limit on the bodies that a script reads.
-- A server answers no other client while a script runs, and it takes about 1 ms to read a megabyte of
-- bodies. So a script stops reading after MOST_BYTES, and returns where the caller continues. It reads at
-- least one body.

local MOST_BYTES = 256 * 1024

local function size_of_body(fields)
  local size = 0
  for i = 1, #fields do
    size = size + #fields[i]
  end
  return size
end
