-- doctor.sql - what `abies-admin doctor` asks the database

-- name: doctor_settings
SELECT name, setting FROM pg_settings
WHERE  name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts', 'data_checksums',
                'default_transaction_isolation', 'default_transaction_read_only', 'zero_damaged_pages', 'ignore_checksum_failure',
                'max_connections', 'superuser_reserved_connections', 'server_encoding', 'log_line_prefix');

-- name: doctor_state
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us,
       pg_is_in_recovery() AS standby,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       (SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'abies\_%' AND backend_type = 'client backend') AS ours,
       (SELECT max(age(datfrozenxid)) FROM pg_database) AS oldest_xid,
       (SELECT count(*) FROM pg_prepared_xacts) AS prepared,
       (SELECT string_agg(c.relname, ' ') FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE NOT i.indisvalid) AS invalid;

-- name: doctor_long
-- The oldest transaction that has written: readers of events wait for it.
SELECT pid, application_name, extract(epoch FROM now() - xact_start)::float8 AS seconds
FROM   pg_stat_activity
WHERE  backend_xid IS NOT NULL AND pid <> pg_backend_pid() AND xact_start < now() - interval '1 minute'
ORDER  BY xact_start LIMIT 1;

-- name: doctor_role_settings
-- migrate gives each role its limits; a role without them can hold up everybody.
SELECT r.rolname AS name
FROM   pg_roles r
WHERE  r.rolname IN ('abies_jobs', 'abies_sessions', 'abies_transfers', 'abies_auth')
  AND  NOT EXISTS (SELECT FROM unnest(r.rolconfig) AS c WHERE c LIKE 'idle\_in\_transaction\_session\_timeout=%');

-- name: doctor_powers
SELECT string_agg(rolname, ' ') AS names
FROM   pg_roles
WHERE  rolname IN ('abies_jobs', 'abies_sessions', 'abies_transfers', 'abies_auth', 'abies_report')
  AND  (rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication);

-- name: doctor_sweep
-- What a sweeper that lives would have ended by now.
SELECT (SELECT count(*) FROM sessions WHERE heartbeat < now() - :silent::interval) AS sessions,
       (SELECT extract(epoch FROM now() - min(created)) FROM requests)::float8 AS oldest_request,
       (SELECT extract(epoch FROM now() - min(m.at)) FROM event_marks m, event_low l WHERE m.id >= l.low AND m.id > 0)::float8 AS oldest_mark,
       (SELECT to_regclass(format('events_%s', last >> 24)) IS NULL OR to_regclass(format('events_%s', (last >> 24) + 1)) IS NULL
        FROM   (SELECT coalesce(pg_sequence_last_value('event_ids'), 0) AS last) AS seq) AS no_room;
