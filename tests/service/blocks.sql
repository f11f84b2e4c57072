-- blocks.sql - statements of test_db

-- name: scalars
-- One parameter of each type; :text_ twice is one parameter. A colon in 'a :quoted text' is none.
SELECT :bool_::bool AS bool_, :int2_::int2 AS int2_, :int4_::int4 AS int4_, :int8_::int8 AS int8_,
       :real4_::float4 AS real4_, :real8_::float8 AS real8_, :text_::text AS text_, :text_ AS again,
       :json_::json AS json_, :jsonb_::jsonb AS jsonb_, :bytes_::bytea AS bytes_,
       :time_::timestamptz AS time_, :uuid_::uuid AS uuid_, :state_::job_state AS state_,
       :xid_::xid8 AS xid_, :span_::interval::text AS span_, :sum_::numeric AS sum_,
       'a :quoted text'::text AS quoted;

-- name: arrays
SELECT :bools::bool[]::text AS bools, :int4s::int4[]::text AS int4s, :int8s::int8[] AS int8s,
       :int8s::text AS int8s_text,
       :reals::float8[]::text AS reals, :texts::text[]::text AS texts, :states::job_state[]::text AS states,
       :jsons::json[]::text AS jsons, :jsonbs::jsonb[]::text AS jsonbs,
       :times::timestamptz[]::text AS times, :uuids::uuid[]::text AS uuids;

-- name: one_user
INSERT INTO users (username) VALUES (:username) RETURNING id;

-- name: one_site
INSERT INTO sites (owner_id, name, path) VALUES (:owner_id, :name, '/s') RETURNING id;

-- name: tagged
SELECT :tags::jsonb::text;

-- name: nap
SELECT pg_sleep(:seconds) IS NULL;

-- name: numbers
SELECT sum(n) AS sum, avg(n) AS avg FROM unnest(:numbers::bigint[]) AS n;
