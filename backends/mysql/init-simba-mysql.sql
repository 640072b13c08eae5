-- The table in which simba-resp, and Simba's own JDBC contenders, keep mutexes.
--
-- It is the table of Simba's init-simba-mysql.sql with three differences: names of
-- the full length that simba-resp allows, compared byte by byte (upper and lower
-- case, accents), and a version, the fencing token, that never comes to its end.
-- Simba's JDBC contenders work with it as they are.
--
-- simba-resp creates it with --mysql-migrate, or run this file by hand.
CREATE TABLE IF NOT EXISTS simba_mutex (
    mutex         VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY
                  COMMENT 'the name',
    acquired_at   BIGINT UNSIGNED NOT NULL COMMENT 'start of the lease, Unix ms of this database; 0 = free',
    ttl_at        BIGINT UNSIGNED NOT NULL COMMENT 'until then the owner may work',
    transition_at BIGINT UNSIGNED NOT NULL COMMENT 'until then nobody else may take it',
    owner_id      VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
                  COMMENT 'the contender that owns it; empty = free',
    version       BIGINT UNSIGNED NOT NULL COMMENT 'counts changes of owner: the fencing token'
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = 'simba: one row a mutex; rows of free mutexes may stay';
