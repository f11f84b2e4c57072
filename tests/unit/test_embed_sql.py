"""tools/embed_sql: what becomes of a block, and errors that say file and line."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EMBED = os.environ.get("EMBED_SQL", str(ROOT / "build/dev/bin/embed_sql"))


def embed(folder, text, name="x.sql"):
    (folder / name).write_text(text)
    return subprocess.run([EMBED, name, "out.sql"], cwd=folder, capture_output=True, text=True, timeout=30)


def made(folder, text, name="x.sql"):
    """The C file, with its string pieces put together."""
    done = embed(folder, text, name)
    assert done.returncode == 0, done.stderr
    c = (folder / "out.sql.c").read_text()
    return re.sub(r'"\n    "', "", c)


def test_a_repeated_name_is_the_same_parameter(tmp_path):
    c = made(tmp_path, "-- name: a\nSELECT :x, :y_2::int, :x;\n")
    assert 'SELECT $1, $2::int, $1"' in c
    assert 'params_a[] = {"x", "y_2", NULL}' in c


@pytest.mark.parametrize("kept", [
    "':no'", '":no"', "E'it\\'s :no'", "'it''s :no'", "$$ :no $$", "$tag$ :no $$ :no $tag$", "x::text", "a := 1",
    "12:30", "'-- no comment'", "'/* none */'"])
def test_what_is_no_parameter_is_left_alone(tmp_path, kept):
    c = made(tmp_path, f"-- name: a\nSELECT {kept}, :yes;\n")
    assert "params_a[] = {\"yes\", NULL}" in c
    text = c[c.index(".text ="):]
    assert kept.replace("\\", "\\\\").replace('"', '\\"') in text


@pytest.mark.parametrize("comment", ["-- a :no\n", "/* a :no 'unclosed */", "/* outer /* :no */ :no */"])
def test_comments_go_with_what_is_in_them(tmp_path, comment):
    c = made(tmp_path, f"-- the file's own comment: it's fine\n\n-- name: a\n-- why :no\nSELECT {comment} :yes;\n-- last words: it's\n")
    assert '{"yes", NULL}' in c and ":no" not in c and "why" not in c and "words" not in c


def test_blocks_keep_their_order_and_their_file(tmp_path):
    c = made(tmp_path, "-- name: one\nSELECT 1;\n\n-- name: two\nSELECT 2;\n", "lease.sql")
    assert c.index("&SQL_one,") < c.index("&SQL_two,") < c.rindex("NULL};")
    assert "lease_sql[]" in c and '.file = "lease.sql"' in c
    assert "extern const struct ab_sql SQL_two;" in (tmp_path / "out.sql.h").read_text()


def test_a_copy_block_keeps_table_and_columns(tmp_path):
    c = made(tmp_path, "-- name: a\nCOPY jobs (id, site_id,\n    state) FROM STDIN (FORMAT binary);\n")
    assert 'columns_a[] = {"id", "site_id", "state", NULL}' in c and '.copy_table = "jobs"' in c


def test_bytes_beyond_ascii_and_backslashes_survive_the_c_compiler(tmp_path):
    made(tmp_path, "-- name: a\nSELECT 'é ?? \\ \"', E'\\n';\n")
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "db.h").write_text(
        "struct ab_sql { const char *name, *text; const char *const *params; const char *file;"
        " const char *const *copy_columns; const char *copy_table; };\n")
    (tmp_path / "main.c").write_text('#include "out.sql.h"\n#include <stdio.h>\n#include <stddef.h>\n'
                                     "int main(void) { fputs(SQL_a.text, stdout); return 0; }\n")
    (tmp_path / "out.sql.c").write_text("#include <stddef.h>\n" + (tmp_path / "out.sql.c").read_text())
    subprocess.run(["cc", "-I.", "-Wall", "-Werror", "-o", "a", "main.c", "out.sql.c"], cwd=tmp_path, check=True)
    text = subprocess.run(["./a"], cwd=tmp_path, capture_output=True, check=True).stdout.decode()
    assert text == "SELECT 'é ?? \\ \"', E'\\n'"


@pytest.mark.parametrize("text, line, words", [
    ("SELECT 1;\n", 1, "no name"),
    ("", 1, "no block"),
    ("-- name: a\n\n-- name: b\nSELECT 1;\n", 1, "no statement"),
    ("-- name: a\nSELECT 1\n", 1, "semicolon"),
    ("-- name: a\nSELECT 1;\nSELECT 2;\n", 3, "second statement"),
    ("-- name: a\nSELECT 1;\n-- name: a\nSELECT 1;\n", 3, "already the name"),
    ("-- name: a b\nSELECT 1;\n", 1, "nothing may follow"),
    ("-- name: 1a\nSELECT 1;\n", 1, "C identifier"),
    ("-- name: " + "a" * 61 + "\nSELECT 1;\n", 1, "longer than 60"),
    ("-- name: a\nSELECT 1,\n  'open;\n", 3, "not closed"),
    ("-- name: a\nSELECT /* open;\n", 2, "not closed"),
    ("-- name: a\nSELECT $$open;\n", 2, "not closed"),
    ("-- name: a\nSELECT\n :'x';\n", 3, "write :name"),
    ("-- name: a\nCOPY jobs FROM STDIN (FORMAT binary);\n", 1, "COPY table"),
    ("-- name: a\nCOPY jobs (id FROM STDIN (FORMAT binary);\n", 1, "STDIN"),
    ("-- name: a\nCOPY jobs (id) FROM STDIN;\n", 1, "binary"),
    ("-- name: a\nCOPY jobs (id) FROM STDIN (FORMAT binary) WHERE id = :x;\n", 1, "no parameters"),
    ("-- name: a\nSELECT " + ", ".join(f":p{i}" for i in range(65)) + ";\n", 2, "more than 64"),
])
def test_errors_name_file_and_line(tmp_path, text, line, words):
    done = embed(tmp_path, text)
    assert done.returncode == 1
    assert done.stderr.startswith(f"x.sql:{line}: "), done.stderr
    assert words in done.stderr
    assert "Sanitizer" not in done.stderr


def test_a_file_that_is_not_there_is_named(tmp_path):
    done = subprocess.run([EMBED, "none.sql", "out"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "none.sql" in done.stderr


def test_whole_files_are_kept_as_they_are(tmp_path):
    text = "-- a comment\nSELECT ':x';\n"
    (tmp_path / "0001_a.sql").write_text(text)
    (tmp_path / "roles.sql").write_text("SELECT 1;\n")
    subprocess.run([EMBED, "--whole", "all", "0001_a.sql", "roles.sql"], cwd=tmp_path, check=True)
    c = (tmp_path / "all.c").read_text()
    assert "-- a comment\\n" in c and c.index("0001_a.sql") < c.index("roles.sql")
