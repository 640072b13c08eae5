module github.com/simba-resp/simba-resp/examples/go/gocron

go 1.26.0

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/redis/go-redis/v9 v9.23.0
	github.com/simba-resp/simba-resp/client v0.0.0
	github.com/simba-resp/simba-resp/client/simbatest v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	github.com/simba-resp/simba-resp v0.0.0 // indirect
	github.com/tidwall/btree v1.1.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/redcon v1.6.2 // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

// Until the first tag.
replace (
	github.com/simba-resp/simba-resp => ../../../
	github.com/simba-resp/simba-resp/client => ../../../client
	github.com/simba-resp/simba-resp/client/simbatest => ../../../client/simbatest
)
