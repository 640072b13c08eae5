-- The table in which simba-resp keeps mutexes, and the sequence of their fencing tokens.
--
-- simba-resp runs these statements with --postgres-migrate. You may also run them by hand.
SELECT pg_advisory_xact_lock(7290116); -- two servers may start at the same time

CREATE TABLE IF NOT EXISTS simba_mutex (
    mutex         text COLLATE "C" NOT NULL PRIMARY KEY,
    owner_id      text COLLATE "C" NOT NULL, -- the contender that owns it; empty = free
    token         bigint NOT NULL,           -- the fencing token of the last tenure
    revision      bigint NOT NULL,           -- counts beginnings and releases
    mark          bigint NOT NULL,           -- differs between any two leases
    acquired_at   bigint NOT NULL,           -- start of the lease, Unix ms of this database
    ttl_at        bigint NOT NULL,           -- until then the owner may work
    transition_at bigint NOT NULL            -- until then nobody else may take it
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The first token is the time in microseconds, so that a new database has higher tokens than one
-- that was lost.
DO $$ BEGIN
    EXECUTE 'CREATE SEQUENCE IF NOT EXISTS simba_token START WITH '
        || floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
END $$;
