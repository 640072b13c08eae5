-- break: see breaks in state.lua.
breaks = true
