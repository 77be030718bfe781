-- What a script reads of bodies.
-- A server answers no other client while a script runs, and a body costs it a millisecond for each
-- megabyte. So a script that reads bodies stops once it has read MOST_BYTES of them, reads one in any
-- case, and returns where the caller continues.

local MOST_BYTES = 256 * 1024

local function size_of_body(fields)
  local size = 0
  for i = 1, #fields do
    size = size + #fields[i]
  end
  return size
end
