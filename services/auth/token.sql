-- token.sql - tokens that renew themselves, and those that ended before their time

-- name: token_add
-- A login, site or script, with its first refresh token. No row: as in user_may.
WITH may AS (
    SELECT id, extract(epoch FROM greatest(date_trunc('second', now()), tokens_from))::bigint AS iat
    FROM   users
    WHERE  id = :user_id AND disabled IS NULL AND (:checked_hash::text IS NULL OR password_hash = :checked_hash)
    FOR    SHARE
), made AS (
    INSERT INTO tokens (owner_id, site_id, name, scope) SELECT id, :site, :token_name, :scope_name FROM may
    RETURNING id, name, scope, site_id, created, last_used
), refresh AS (
    INSERT INTO refresh_tokens (hash, token_id, jti, access_ends, expires)
    SELECT :hash, id, :jti, :access_ends, now() + :refresh_life::interval FROM made
)
SELECT made.id, name, scope, site_id, created, last_used, iat FROM made, may;

-- name: token_site
SELECT id FROM sites WHERE id = :site AND owner_id = :owner_id;

-- name: token_exchange
-- Use one up, add the next. No row: unknown, expired, or used before (token_used says which).
WITH old AS (
    UPDATE refresh_tokens r SET used = now()
    FROM   tokens t JOIN users u ON u.id = t.owner_id
    WHERE  r.hash = :hash AND r.used IS NULL AND r.expires > now() AND t.id = r.token_id AND u.disabled IS NULL
    RETURNING t.id, t.owner_id, u.username, t.scope, t.site_id,
              extract(epoch FROM greatest(date_trunc('second', now()), u.tokens_from))::bigint AS iat
), next AS (
    INSERT INTO refresh_tokens (hash, token_id, jti, access_ends, expires)
    SELECT :next_hash, id, :jti, :access_ends, now() + :refresh_life::interval FROM old
), touched AS (
    UPDATE tokens SET last_used = now() FROM old WHERE tokens.id = old.id
)
SELECT owner_id, username, scope, site_id, iat FROM old;

-- name: token_used
-- One that was used before: a reply that got lost, if it is young and its successor unused; else it was stolen.
SELECT r.token_id, t.owner_id, u.username, t.scope, t.site_id, next.jti, next.access_ends,
       extract(epoch FROM greatest(date_trunc('second', now()), u.tokens_from))::bigint AS iat,
       coalesce(r.used > now() - :grace::interval AND next.used IS NULL AND next.expires > now(), false) AS again
FROM   refresh_tokens r
JOIN   tokens t ON t.id = r.token_id
JOIN   users u ON u.id = t.owner_id
LEFT   JOIN refresh_tokens next ON next.hash = :next_hash
WHERE  r.hash = :hash AND r.used IS NOT NULL AND u.disabled IS NULL;

-- name: token_of_hash
SELECT t.id, t.owner_id, u.username
FROM   refresh_tokens r
JOIN   tokens t ON t.id = r.token_id
JOIN   users u ON u.id = t.owner_id
WHERE  r.hash = :hash;

-- name: token_revoke
-- The token, all its refresh tokens (by the foreign key) and the access tokens that are still good.
WITH gone AS (
    DELETE FROM tokens WHERE id = :token_id AND owner_id = :token_owner RETURNING id
), ended AS (
    INSERT INTO revoked_tokens (jti, expires)
    SELECT r.jti, r.access_ends FROM refresh_tokens r JOIN gone ON gone.id = r.token_id WHERE r.access_ends > now()
    ON CONFLICT (jti) DO NOTHING
    RETURNING jti, expires
)
SELECT (SELECT count(*) FROM gone) AS gone, jti, extract(epoch FROM expires)::bigint AS expires
FROM   (SELECT) AS one LEFT JOIN ended ON true;

-- name: token_rows
SELECT id, name, scope, site_id, created, last_used
FROM   tokens
WHERE  owner_id = :owner_id
ORDER  BY id
LIMIT  10000;

-- name: token_ended
SELECT jti::text AS jti, extract(epoch FROM expires)::bigint AS expires
FROM   revoked_tokens
WHERE  expires > now()
ORDER  BY expires DESC
LIMIT  100000;

-- name: token_forget
-- In pieces. A token whose last refresh token has expired can never be used again.
WITH old AS (
    DELETE FROM refresh_tokens
    WHERE  ctid = ANY (ARRAY(SELECT ctid FROM refresh_tokens WHERE expires < now() LIMIT 1000))
    RETURNING token_id
), revoked AS (
    DELETE FROM revoked_tokens WHERE expires < now() - interval '1 minute'
), tokens AS (
    DELETE FROM tokens t USING old
    WHERE  t.id = old.token_id AND NOT EXISTS (SELECT FROM refresh_tokens r WHERE r.token_id = t.id AND r.expires >= now())
)
SELECT count(*) AS n FROM old;
