"""A psql script made of the blocks of our .sql files, and expectations about what they do.

':name' of a block is replaced by the literal given, so what runs is the text that the services run."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("common/lifecycle/lifecycle.sql", "common/service/request.sql", "services/jobs/create.sql",
         "services/jobs/count.sql", "services/sessions/lease.sql", "services/sessions/sweep.sql",
         "tests/service/insert.sql")


def read_blocks():
    blocks = {}
    for file in FILES:
        for part in re.split(r"^-- name: ", (ROOT / file).read_text(), flags=re.M)[1:]:
            name, _, body = part.partition("\n")
            lines = [line for line in body.split("\n") if not line.startswith("--")]
            blocks[name.strip()] = "\n".join(lines).strip().rstrip(";")
    return blocks


def arr(values, kind):
    return "'{" + ",".join("NULL" if v is None else str(v) for v in values) + "}'::" + kind + "[]"


def fill(value, kind, n):
    return f"array_fill({value}::{kind}, ARRAY[{n}])"


class Script:
    def __init__(self):
        self.blocks = read_blocks()
        self.lines = ["SET client_min_messages = warning;"]
        self.rules = []

    def say(self, text):
        self.lines.append(text)

    def call(self, block, **values):
        return re.sub(r"(?<!:):([a-z_]\w*)", lambda m: str(values[m[1]]), self.blocks[block]) + ";\n"

    def loop(self, sql, body):
        """Run a block and do `body` with each of its rows, r."""
        sql = sql.rstrip(";\n")
        self.say(f"DO $d$ DECLARE r record; BEGIN FOR r IN {sql} LOOP {body} END LOOP; END $d$;")

    def want(self, rule, expression, value):
        """One rule: a line 'rule|number|t', or what it was instead of t."""
        n = len(self.rules)
        self.rules.append(rule)
        value = value.replace("'", "''")
        self.say(f"SELECT 'rule', {n}, CASE WHEN ({expression})::text IS NOT DISTINCT FROM '{value}' THEN 't' "
                 f"ELSE coalesce(({expression})::text, 'null') END;")

    # ---- what the services do, in the order in which they do it

    def create(self, ids, states, parents=None, ins=None, outs=None, packing=None, walls=None, nodes=None,
               priority=None, owner=1, site=1):
        n = len(ids)
        parents = parents or {}
        one, zero = [1] * n, [0] * n
        ins, outs = ins or zero, outs or zero
        values = dict(
            owner_id=owner, ids=arr(ids, "bigint"), site_ids=arr([site] * n, "bigint"),
            app_ids=arr([site] * n, "bigint"), states=arr(states, "job_state"),
            open_parents=arr([len(parents.get(i, [])) for i in ids], "int"),
            open_in=arr(ins, "int"), open_out=arr(outs, "int"),
            num_nodes=arr(nodes or one, "int"), ranks_per_node=arr(one, "int"),
            node_packing_count=arr(packing or one, "int"), wall_time_min=arr(walls or zero, "int"),
            return_code=arr([None] * n, "int"), priority=arr(priority or zero, "int"),
            threads_per_rank=arr(one, "int"), threads_per_core=arr(one, "int"), gpus_per_rank=arr(zero, "float8"),
            workdir=arr([f"w{i}" for i in ids], "text"),
            parent_ids="ARRAY[" + ",".join("'{%s}'" % ",".join(map(str, parents.get(i, []))) for i in ids) + "]",
            tags=fill("""'{"k": "v"}'""", "jsonb", n), parameters=fill("'{}'", "json", n),
            data=fill("'{}'", "json", n), launch_params=fill("'{}'", "json", n),
            serialized_parameters=fill("''", "text", n), retry=fill("NULL", "json", n))
        self.say("BEGIN;")
        for block in ("job_insert", "job_spec_insert", "job_first_events"):
            self.say(self.call(block, **values))
        edges = [(p, c) for c in parents for p in parents[c]]
        if edges:
            self.say(self.call("job_edges", parents=arr([p for p, _ in edges], "bigint"),
                               children=arr([c for _, c in edges], "bigint")))
        self.add_items([(i, d) for k, i in enumerate(ids) for d, m in (("in", ins[k]), ("out", outs[k]))
                        for _ in range(m)], owner, site)
        self.say("COMMIT;")

    def add_items(self, items, owner, site):
        n = len(items)
        if n:
            self.say(self.call(
                "job_items", owner_id=owner, site_ids=arr([site] * n, "bigint"),
                job_ids=arr([i for i, _ in items], "bigint"),
                directions=arr([d for _, d in items], "transfer_direction"), recursive=arr(["f"] * n, "boolean"),
                local_paths=arr(["l"] * n, "text"), remote_paths=arr(["r"] * n, "text"),
                location_aliases=arr(["a"] * n, "text")))

    def release(self):
        self.loop(self.call("job_release", finished="(SELECT coalesce((SELECT finished FROM last LIMIT 1), '{}'))",
                            reopened="(SELECT coalesce((SELECT reopened FROM last LIMIT 1), '{}'))"), "NULL;")

    def step(self, ids, state, owner=1, data="NULL", at="NULL", leases="'{}'"):
        states = state if isinstance(state, list) else [state] * len(ids)
        self.say("BEGIN; TRUNCATE last;")
        self.loop(self.call("job_step", owner_id=owner, ids=arr(ids, "bigint"), states=arr(states, "job_state"),
                            timestamps=fill(at, "timestamptz", len(ids)), data=fill(data, "jsonb", len(ids)),
                            leases=leases),
                  "INSERT INTO last VALUES (r.matched, r.moved, r.finished, r.reopened, r.stale);")
        self.release()
        self.say("COMMIT;")

    def items(self, where, state):
        named = f"(SELECT array_agg(id ORDER BY id) FROM transfer_items WHERE {where})"
        states = f"(SELECT array_agg('{state}'::transfer_state) FROM transfer_items WHERE {where})"
        self.say("BEGIN; TRUNCATE last;")
        self.loop(self.call("item_lock", owner_id=1, ids=named), "NULL;")
        self.loop(self.call("item_step", owner_id=1, ids=named, states=states, task_ids="'{}'::text[]",
                            infos="'{}'::json[]"), "INSERT INTO last (finished) VALUES (r.finished);")
        self.release()
        self.say("COMMIT;")

    def lease(self, block, session, n=1000, **given):
        values = dict(owner_id=1, session_id=session, site_id=1, batch_job_id="NULL::bigint",
                      states="'{PREPROCESSED,RESTART_READY}'", max_nodes=2147483647, max_wall_time=2147483647,
                      serial_only="false", app_ids="'{}'", tags="'{}'", max_jobs=n, budget="'Infinity'")
        values.update(given)
        self.say("TRUNCATE got;")
        self.loop(self.call(block, **values),
                  "IF r.id IS NOT NULL THEN INSERT INTO got VALUES (r.id, r.place, r.lease, r.batch_job_id); END IF;")


def state(job):
    return f"SELECT state || CASE WHEN session_id IS NULL THEN '' ELSE ' held' END FROM jobs WHERE id = {job}"


def history(job):
    return ("SELECT string_agg(from_state || '>' || to_state || coalesce(':' || (data->>'message'), ''), ' ' ORDER BY id)"
            f" FROM events WHERE job_id = {job}")
