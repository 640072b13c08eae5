-- The first line of break: see breaks in state.lua.
breaks = true
