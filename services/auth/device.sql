-- device.sql - logging in on a device without a browser (RFC 8628)

-- name: device_add
-- No row: the client has used this id before.
INSERT INTO device_attempts (client_id, device_hash, user_code, expires, next_poll)
VALUES (:client_id, :device_hash, :user_code, now() + :life::interval, now() + :pause::interval)
ON CONFLICT (client_id) DO NOTHING
RETURNING id;

-- name: device_poll
-- Looks, and does what follows from it: a poll before its time moves the next one, and of those that find the user
-- one gets the token. The same request may come again (its service died, or its answer was lost): it is the one that has taken it.
WITH found AS (
    SELECT a.id, a.denied OR u.disabled IS NOT NULL AS denied, a.expires <= now() AS expired, a.user_id, u.username,
           a.next_poll, u.tokens_from
    FROM   device_attempts a
    LEFT   JOIN users u ON u.id = a.user_id
    WHERE  a.client_id = :client_id AND a.device_hash = :device_hash AND (a.taken IS NULL OR a.taken = :key)
    FOR    UPDATE OF a
), paced AS (
    UPDATE device_attempts a
    SET    next_poll = greatest(now(), least(f.next_poll, now() + :pause::interval)) + :pause::interval
    FROM   found f
    WHERE  a.id = f.id AND f.user_id IS NULL AND NOT f.denied AND NOT f.expired
), taken AS (
    UPDATE device_attempts a SET taken = :key
    FROM   found f
    WHERE  a.id = f.id AND f.user_id IS NOT NULL AND NOT f.denied AND NOT f.expired
)
SELECT user_id, username, denied, expired,
       greatest(0, extract(epoch FROM next_poll - now()) * 1000)::bigint AS early_ms,
       extract(epoch FROM greatest(date_trunc('second', now()), tokens_from))::bigint AS iat
FROM   found;

-- name: device_find
-- Of a code that a person typed.
SELECT id, user_code FROM device_attempts
WHERE  user_code = :code AND expires > now() AND NOT denied AND user_id IS NULL;

-- name: device_approve
-- No row: too late.
UPDATE device_attempts SET user_id = :user_id
WHERE  id = :attempt AND expires > now() AND NOT denied AND taken IS NULL AND (user_id IS NULL OR user_id = :user_id)
RETURNING id;

-- name: device_deny
UPDATE device_attempts SET denied = true WHERE id = :attempt AND user_id IS NULL;

-- name: device_forget
WITH attempts AS (
    DELETE FROM device_attempts WHERE expires < now() - interval '30 minutes' RETURNING id
), states AS (
    DELETE FROM login_states WHERE expires < now() RETURNING hash
)
SELECT (SELECT count(*) FROM attempts) + (SELECT count(*) FROM states) AS n;
