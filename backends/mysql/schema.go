package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/simba-resp/simba-resp"
)

// column is a column of simba_mutex in information_schema.
type column struct {
	kind    string // data_type
	whole   string // column_type, with length and unsigned
	length  int    // in characters, of a text column
	charset string // of a text column
	key     string
	initial string // "NO 0" if it is not nullable and its default is 0
}

// table is what the engine needs to know of simba_mutex.
type table struct {
	mutex, owner column
}

// checkTable checks the table and the user's rights to it. Its errors have one line.
func checkTable(ctx context.Context, db *sql.DB) (t table, err error) {
	for _, try := range []string{
		"SELECT mutex FROM simba_mutex LIMIT 0",
		"UPDATE simba_mutex SET version = version, acquired_at = acquired_at, ttl_at = ttl_at, transition_at = transition_at," +
			" owner_id = owner_id, fencing_token = fencing_token WHERE 1 = 0",
		"INSERT INTO simba_mutex (mutex, acquired_at, ttl_at, transition_at, owner_id, version)" +
			" SELECT mutex, acquired_at, ttl_at, transition_at, owner_id, version FROM simba_mutex WHERE 1 = 0",
	} {
		if _, err := db.ExecContext(ctx, try); err != nil && errorNumber(err) != errNoColumn {
			return t, err
		}
	}
	rows, err := query(ctx, db, `SELECT column_name, data_type, column_type,
		COALESCE(character_maximum_length, 0), COALESCE(character_set_name, ''), column_key,
		CONCAT(is_nullable, ' ', COALESCE(column_default, '')),
		COALESCE((SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'simba_mutex'), '')
		FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'simba_mutex'`)
	if err != nil {
		return t, err
	}
	defer rows.Close()
	columns := make(map[string]column)
	keys, engine := 0, ""
	for rows.Next() {
		var name string
		var c column
		if err := rows.Scan(&name, &c.kind, &c.whole, &c.length, &c.charset, &c.key, &c.initial, &engine); err != nil {
			return t, err
		}
		columns[strings.ToLower(name)] = c
		if c.key == "PRI" {
			keys++
		}
	}
	if err := rows.Err(); err != nil {
		return t, err
	}
	t.mutex, t.owner = columns["mutex"], columns["owner_id"]
	for _, want := range []struct {
		name, kind string
		kinds      []string
	}{
		{"mutex", "VARCHAR", []string{"char", "varchar"}},
		{"acquired_at", "BIGINT UNSIGNED", []string{"bigint"}},
		{"ttl_at", "BIGINT UNSIGNED", []string{"bigint"}},
		{"transition_at", "BIGINT UNSIGNED", []string{"bigint"}},
		{"owner_id", "VARCHAR", []string{"char", "varchar"}},
		{"version", "BIGINT UNSIGNED", []string{"int", "bigint"}},
		{"fencing_token", "BIGINT UNSIGNED", []string{"bigint"}},
	} {
		switch c, ok := columns[want.name]; {
		case !ok && want.name == "fencing_token":
			return t, errNoToken
		case !ok:
			return t, faultf("table simba_mutex has no column %s, so it is not Simba's: rename it, and start with --mysql-migrate", want.name)
		case !slices.Contains(want.kinds, c.kind):
			return t, faultf("table simba_mutex: column %s is %s, expected %s", want.name, c.whole, want.kind)
		}
	}
	if columns["fencing_token"].initial != "NO 0" {
		return t, faultf("table simba_mutex: column fencing_token can be NULL, or its default is not 0: run ALTER TABLE simba_mutex MODIFY fencing_token BIGINT UNSIGNED NOT NULL DEFAULT 0")
	}
	if t.mutex.key != "PRI" || keys != 1 {
		return t, faultf("table simba_mutex: column mutex is not its primary key")
	}
	if !strings.EqualFold(engine, "InnoDB") {
		return t, faultf("table simba_mutex uses engine %s: run ALTER TABLE simba_mutex ENGINE = InnoDB", engine)
	}
	return t, nil
}

// check returns a *simba.NameError for a name that the column cannot hold exactly.
func (c column) check(argument, name string) error {
	if n := utf8.RuneCountInString(name); n > c.length {
		return &simba.NameError{Argument: argument, Problem: fmt.Sprintf(
			"it has %d characters, but the column of the table holds %d", n, c.length)}
	}
	for _, r := range name {
		if !c.holds(r) {
			return &simba.NameError{Argument: argument, Problem: fmt.Sprintf(
				"the character set %s of the table has no %q", c.charset, r)}
		}
	}
	return nil
}

// holds reports whether the column's character set has the character. For uncommon character sets
// it accepts ASCII only.
func (c column) holds(r rune) bool {
	switch {
	case r < utf8.RuneSelf || c.charset == "utf8mb4":
		return true
	case c.charset == "utf8" || c.charset == "utf8mb3":
		return r <= 0xffff
	case c.charset == "latin1": // the Windows code page 1252
		return r >= 0xa0 && r <= 0xff || strings.ContainsRune("€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ", r)
	}
	return false
}
