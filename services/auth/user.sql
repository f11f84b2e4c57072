-- user.sql - people and their passwords

-- name: user_find
SELECT id, username, password_hash FROM users WHERE username = :username;

-- name: user_add
-- No row: the name is taken.
INSERT INTO users (username, password_hash) VALUES (:username, :password_hash)
ON CONFLICT (username) DO NOTHING
RETURNING id, username;

-- name: user_rehash
-- Only what was checked: a password that changed meanwhile stays.
UPDATE users SET password_hash = :new_hash WHERE id = :user_id AND password_hash = :password_hash;
