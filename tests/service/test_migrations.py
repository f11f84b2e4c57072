"""Programs of version N go on with a database of version N+1: no migration takes away or narrows what was there before it.

Each migration is applied in turn, and the catalogue behind it compared with the one before. What the version before has stopped
using may go: a line `-- contract: NAME` in the migration names it (table, table.column, function(arguments), type.label)."""
import re
import uuid

import pytest
from throwaway import ROOT, Database

# Written before migrations named what they take away. No program used these tables as 0001 made them: there were no routes yet.
UNUSED = {"0004_sign_in.sql": {"device_attempts", "login_states"}}
MIGRATIONS = sorted((ROOT / "common/db/migrations").glob("[0-9]*.sql"))
CATALOGUE = {
    "relation": "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'S') AND NOT relispartition",
    "column": """SELECT c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped""",
    "required": """SELECT c.relname || '.' || a.attname, 'required' FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                   WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0
                   AND NOT a.attisdropped AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''""",
    "function": """SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', pg_get_function_result(p.oid) FROM pg_proc p
                   WHERE p.pronamespace = 'public'::regnamespace""",
    "label": "SELECT t.typname || '.' || e.enumlabel, '' FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid",
    "rule": """SELECT c.conrelid::regclass || ' ' || c.conname, coalesce((SELECT string_agg(a.attname, ' ') FROM pg_attribute a
                      WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)), '') || '|' || pg_get_constraintdef(c.oid) FROM pg_constraint c
               WHERE c.connamespace = 'public'::regnamespace AND c.contype IN ('c', 'f', 'u', 'x') AND c.conparentid = 0
               AND NOT (SELECT relispartition FROM pg_class WHERE oid = c.conrelid)""",
}


def catalogue(db):
    found = {}
    for kind, query in CATALOGUE.items():
        found[kind] = dict(line.split("|", 1) for line in db.psql(query))
    return found


def breaks(before, after, gone):
    """What a program that knows `before` would stumble over in `after`."""
    bad = []
    for kind in ("relation", "column", "function", "label"):
        for name, what in before[kind].items():
            if name in gone or name.split(".")[0] in gone:
                continue
            if name not in after[kind]:
                bad.append(f"{kind} {name} is gone")
            elif after[kind][name] != what:
                bad.append(f"{kind} {name} was {what} and is {after[kind][name]}")
    for name in after["required"]:
        table = name.split(".")[0]  # one that is gone may come again as another
        if table in before["relation"] and table not in gone and name not in before["required"]:
            bad.append(f"column {name} must be given now")
    for name, what in after["rule"].items():
        table, (columns, text) = name.split(" ")[0], what.split("|", 1)
        touched = not columns or any(f"{table}.{column}" in before["column"] for column in columns.split())
        if table in before["relation"] and table not in gone and touched and before["rule"].get(name) != what and name not in gone:
            bad.append(f"a new rule, {name}: {text}")
    return bad


def contract(text):
    return {m.strip() for m in re.findall(r"^-- contract: *([^,\n]+)", text, re.M)}


@pytest.fixture(scope="module")
def steps(cluster):
    """[(file name, text, catalogue before, catalogue after)] and the database with all of them."""
    admin, name = Database(cluster, "postgres"), "steps_" + uuid.uuid4().hex[:12]
    admin.psql(f"CREATE DATABASE {name}")
    db, rows, before = Database(cluster, name), [], None
    for file in MIGRATIONS:
        text = file.read_text()
        db.psql(text, "--single-transaction")
        after = catalogue(db)
        rows.append((file.name, text, before, after))
        before = after
    yield rows, db
    admin.psql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("number", range(1, len(MIGRATIONS)), ids=[m.stem for m in MIGRATIONS[1:]])
def test_a_migration_takes_nothing_away_from_the_version_before(steps, number):
    name, text, before, after = steps[0][number]
    assert breaks(before, after, contract(text) | UNUSED.get(name, set())) == [], name


@pytest.mark.parametrize("change, complaint", [
    ("DROP TABLE audit", "relation audit is gone"),
    ("ALTER TABLE jobs DROP COLUMN lease CASCADE", "column jobs.lease is gone"),
    ("ALTER TABLE jobs RENAME COLUMN lease TO fence", "column jobs.lease is gone"),
    ("ALTER TABLE sites ALTER COLUMN name TYPE varchar(20)", "column sites.name was"),
    ("ALTER TABLE sites ADD COLUMN x int NOT NULL", "column sites.x must be given now"),
    ("ALTER TABLE sites ADD CHECK (length(name) < 3)", "a new rule, sites"),
    ("DROP FUNCTION make_event_partition(int)", "function make_event_partition(nth integer) is gone"),
    ("ALTER TYPE job_state RENAME VALUE 'READY' TO 'IDLE'", "label job_state.READY is gone"),
])
def test_the_comparison_sees(steps, change, complaint):
    rows, db = steps
    lines = db.psql(f"BEGIN; {change}; " + "; SELECT '--'; ".join(CATALOGUE.values()) + "; ROLLBACK;")
    parts, kinds = [[]], list(CATALOGUE)
    for line in lines:
        if line == "--":
            parts.append([])
        else:
            parts[-1].append(line)
    after = {kind: dict(line.split("|", 1) for line in part) for kind, part in zip(kinds, parts)}
    assert [b for b in breaks(rows[-1][3], after, set()) if complaint in b]


def test_what_may_be_added_is_no_break(steps):
    before = steps[0][-1][3]
    after = {kind: dict(rows) for kind, rows in before.items()}
    after["column"]["jobs.new"] = "integer"
    after["relation"]["fresh"] = "r"
    after["required"]["fresh.id"] = "required"
    after["label"]["job_state.NEW"] = ""
    assert breaks(before, after, set()) == []
    del after["column"]["jobs.lease"]
    assert breaks(before, after, {"jobs.lease"}) == []
