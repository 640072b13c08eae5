-- The prelude of break.
breaks = true
