-- roles.sql - who may do what. Run by the owner of the tables after the migrations; it may be
-- repeated. Passwords are set by `abies-admin roles`.
--
-- One login role per service. Nobody but the owner may change tables; nobody but auth may read a password
-- hash; nobody may rewrite an event.
DO $$
DECLARE r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['abies_jobs', 'abies_sessions', 'abies_transfers', 'abies_auth', 'abies_report'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
            EXECUTE format('CREATE ROLE %I LOGIN NOINHERIT', r);
        END IF;
        EXECUTE format('ALTER ROLE %I SET timezone = ''UTC''', r);
        EXECUTE format('ALTER ROLE %I SET statement_timeout = ''30s''', r);      -- tightened per call from its deadline
        EXECUTE format('ALTER ROLE %I SET lock_timeout = ''5s''', r);
        EXECUTE format('ALTER ROLE %I SET idle_in_transaction_session_timeout = ''5s''', r);  -- a forgotten one stops the event tail
        EXECUTE format('ALTER ROLE %I SET plan_cache_mode = ''force_generic_plan''', r);
        EXECUTE format('ALTER ROLE %I SET random_page_cost = 1.1', r);
        EXECUTE format('ALTER ROLE %I SET jit = off', r);
    END LOOP;
    -- Hot statements are keyed by id, site or session: no plan made while a table was empty may scan it later. Nor may a
    -- bitmap of a whole queue stand where its head is to be taken, in the order of its index.
    -- List queries: SET LOCAL enable_seqscan, enable_bitmapscan = on, plan_cache_mode = auto.
    FOREACH r IN ARRAY ARRAY['abies_jobs', 'abies_sessions', 'abies_transfers'] LOOP
        EXECUTE format('ALTER ROLE %I SET enable_seqscan = off', r);
        EXECUTE format('ALTER ROLE %I SET enable_bitmapscan = off', r);
    END LOOP;
END $$;

REVOKE ALL ON SCHEMA public FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION make_event_partition(int) FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO abies_jobs, abies_sessions, abies_transfers, abies_auth, abies_report;

-- what every service that moves jobs needs
GRANT SELECT, INSERT ON job_counts, events TO abies_jobs, abies_sessions, abies_transfers;
GRANT USAGE ON SEQUENCE event_ids TO abies_jobs, abies_sessions, abies_transfers;
GRANT SELECT, INSERT, UPDATE ON requests TO abies_jobs, abies_sessions, abies_transfers, abies_auth;
GRANT SELECT ON schema_version TO abies_jobs, abies_sessions, abies_transfers, abies_auth, abies_report;
GRANT SELECT ON users_public TO abies_jobs, abies_sessions, abies_transfers, abies_report;

GRANT SELECT, INSERT, UPDATE, DELETE ON sites, apps, jobs, job_specs, job_parents, batch_jobs, transfer_items TO abies_jobs;
GRANT DELETE ON events, job_counts TO abies_jobs;                   -- a deleted job takes its events along; folding
GRANT SELECT, UPDATE, DELETE ON sessions TO abies_jobs;             -- with a site or batch job go its sessions
GRANT SELECT ON event_floors TO abies_jobs;
GRANT USAGE ON SEQUENCE job_ids TO abies_jobs;

GRANT SELECT, INSERT, UPDATE, DELETE ON sessions TO abies_sessions;
GRANT SELECT ON sites, apps, batch_jobs, jobs, job_specs TO abies_sessions;
GRANT UPDATE (session_id, batch_job_id, lease, last_update, state, cancel, not_before) ON jobs TO abies_sessions;
GRANT DELETE ON requests TO abies_sessions;                         -- its sweeper also forgets old request ids
GRANT EXECUTE ON FUNCTION make_event_partition(int), event_room(), event_forget(interval, int), event_drop()
    TO abies_sessions;                                              -- and makes room for events, and forgets old ones

GRANT SELECT ON sites, jobs, job_specs, job_parents, transfer_items TO abies_transfers;
GRANT UPDATE (state, task_id, transfer_info, failures, not_before) ON transfer_items TO abies_transfers;
GRANT UPDATE (state, session_id, last_update, open_in, open_out, open_parents) ON jobs TO abies_transfers;

GRANT SELECT, INSERT, UPDATE, DELETE ON users, identities, device_attempts, login_states TO abies_auth;
GRANT SELECT, DELETE ON ended_users TO abies_auth;
GRANT INSERT ON audit TO abies_auth;                                -- what was done stays as it was written
GRANT EXECUTE ON FUNCTION audit_forget(interval) TO abies_auth;
GRANT SELECT, INSERT, UPDATE, DELETE ON tokens, refresh_tokens, revoked_tokens, login_attempts TO abies_auth;
GRANT SELECT, INSERT, UPDATE ON signing_keys TO abies_auth;
GRANT SELECT (id, owner_id) ON sites TO abies_auth;                 -- whose site is a site token for?

GRANT SELECT ON sites, apps, batch_jobs, sessions, jobs, job_specs, job_parents, transfer_items, events, event_low, job_counts TO abies_report;
ALTER ROLE abies_report SET default_transaction_read_only = on;
