-- The table in which simba-resp and Simba's own JDBC contenders keep mutexes.
--
-- It differs from the table of Simba 3.3's init-simba-mysql.sql in three points. Names may have the
-- full length that simba-resp allows. Names are compared byte by byte, so case and accents count.
-- And the version does not overflow. Simba's JDBC contenders of every version work with it.
--
-- simba-resp creates the table with --mysql-migrate. You may also run this file by hand.
CREATE TABLE IF NOT EXISTS simba_mutex (
    mutex         VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY
                  COMMENT 'the name',
    acquired_at   BIGINT UNSIGNED NOT NULL COMMENT 'start of the lease, Unix ms of this database; 0 = free',
    ttl_at        BIGINT UNSIGNED NOT NULL COMMENT 'until then the owner may work',
    transition_at BIGINT UNSIGNED NOT NULL COMMENT 'until then nobody else may take it',
    owner_id      VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
                  COMMENT 'the contender that owns it; empty = free',
    version       BIGINT UNSIGNED NOT NULL COMMENT 'counts changes of the row',
    fencing_token BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'the fencing token of the last tenure'
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = 'simba: one row a mutex; rows of free mutexes may stay';
