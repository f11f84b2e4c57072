-- user.sql - people and their passwords

-- name: user_find
SELECT id, username, password_hash, disabled IS NOT NULL AS disabled FROM users WHERE username = :username;

-- name: user_add
-- No row: the name is taken.
INSERT INTO users (username, password_hash) VALUES (:username, :password_hash)
ON CONFLICT (username) DO NOTHING
RETURNING id, username;

-- name: user_rehash
-- Only what was checked: a password that changed meanwhile stays.
UPDATE users SET password_hash = :new_hash WHERE id = :user_id AND password_hash = :password_hash;

-- name: user_ended
-- What a gateway must know of users: none or only the younger of their tokens are good. Older rows than the longest life of a
-- token say nothing any more.
SELECT id AS user, 9223372036854775807 AS since FROM users WHERE disabled > now() - :life::interval
UNION ALL
SELECT id, extract(epoch FROM tokens_from)::bigint FROM users
WHERE  tokens_from > now() - :life::interval AND disabled IS NULL
UNION ALL
SELECT user_id, 9223372036854775807 FROM ended_users WHERE ended > now() - :life::interval
LIMIT  100000;

-- name: user_ended_forget
DELETE FROM ended_users WHERE ended < now() - :life::interval;
