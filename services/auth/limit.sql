-- limit.sql - who tries too often

-- name: limit_attempt
-- Counts this attempt under both keys, always in this order. The window of a key begins with its first attempt.
INSERT INTO login_attempts AS a (key, since, attempts)
VALUES (:who, now(), 1), (:address, now(), 1)
ON CONFLICT (key) DO UPDATE SET
    attempts = CASE WHEN a.since < now() - :window::interval THEN 1 ELSE least(a.attempts, 1000000000) + 1 END,
    since    = CASE WHEN a.since < now() - :window::interval THEN now() ELSE a.since END
RETURNING attempts, ceil(extract(epoch FROM since + :window::interval - now()))::int AS seconds_left;

-- name: limit_forgive
-- The password was right: these attempts were no guesses.
UPDATE login_attempts SET attempts = CASE WHEN key = :who THEN 0 ELSE greatest(attempts - 1, 0) END
WHERE  key IN (:who, :address);

-- name: limit_forget
DELETE FROM login_attempts WHERE since < now() - 2 * :window::interval;
