-- oauth.sql - browsers that are sent to the provider and come back, and who they turn out to be

-- name: oauth_state_add
INSERT INTO login_states (hash, attempt_id, redirect_uri, expires)
VALUES (:state_hash, :attempt, :redirect_uri, now() + :life::interval);

-- name: oauth_state_take
-- Used once, whatever comes of it.
DELETE FROM login_states s
WHERE  s.hash = :state_hash
RETURNING s.attempt_id, s.redirect_uri, s.expires > now() AS good;

-- name: oauth_known
SELECT u.id, u.username, u.disabled IS NOT NULL AS disabled
FROM   identities i
JOIN   users u ON u.id = i.user_id
WHERE  i.issuer = :issuer AND i.subject = :subject;

-- name: oauth_join
-- Somebody who was not here before: a new user, or one of that name whom nothing else can sign in. Nobody gets the account
-- of somebody who has a password or came from a provider already, unless the operator says so (:adopt).
WITH made AS (
    INSERT INTO users (username) VALUES (:name) ON CONFLICT (username) DO NOTHING
    RETURNING id
), same AS (
    SELECT u.id FROM users u
    WHERE  u.username = :name AND NOT EXISTS (SELECT FROM made)
    AND    (u.password_hash IS NULL OR :adopt) AND NOT EXISTS (SELECT FROM identities i WHERE i.user_id = u.id)
    FOR    UPDATE
)
INSERT INTO identities (issuer, subject, user_id)
SELECT :issuer, :subject, id FROM (SELECT id FROM made UNION ALL SELECT id FROM same) AS who
ON CONFLICT DO NOTHING
RETURNING user_id;
