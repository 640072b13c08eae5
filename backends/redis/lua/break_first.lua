breaks = true
