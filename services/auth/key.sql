-- key.sql - the keys that sign access tokens

-- name: key_lock
-- Of replicas that start together, one makes the first key.
SELECT pg_advisory_xact_lock(hashtext('abies signing key'));

-- name: key_active
-- The newest signs, but not before every gateway has it: they ask every five seconds. So of those that are young the oldest.
-- (abies-admin retires the old one in a minute.)
SELECT kid, public_key, secret_key
FROM   signing_keys
WHERE  retired IS NULL OR retired > now()
ORDER  BY created > now() - interval '15 seconds', CASE WHEN created > now() - interval '15 seconds' THEN created END,
          created DESC, kid
LIMIT  1;

-- name: key_add
INSERT INTO signing_keys (kid, public_key, secret_key) VALUES (:kid, :public_key, :secret_key);

-- name: key_all
-- A retired key checks until the last token that it signed has ended.
SELECT kid, public_key AS key
FROM   signing_keys
WHERE  retired IS NULL OR retired > now() - :life::interval
ORDER  BY created DESC, kid
LIMIT  16;
