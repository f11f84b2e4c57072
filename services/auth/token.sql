-- token.sql - tokens that renew themselves, and those that ended before their time

-- name: token_add
-- A login, site or script, with its first refresh token. The time of a token is this database's: tokens_from is compared with it.
-- No row: the user is gone, locked out, or has another password than the one that was checked (NULL: none was).
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

-- name: token_made
-- What token_add made, and its first refresh token: the answer to a request that comes again. The access token's time is what it
-- was then; a user whose tokens have been cut since gets none that is younger than the cut.
SELECT t.id, t.owner_id, u.username, t.name, t.scope, t.site_id, t.created, r.hash, r.jti, r.access_ends,
       extract(epoch FROM greatest(date_trunc('second', t.created),
                                   CASE WHEN u.tokens_from < t.created + interval '2 seconds' THEN u.tokens_from END))::bigint AS iat
FROM   tokens t
JOIN   users u ON u.id = t.owner_id
CROSS  JOIN LATERAL (SELECT hash, jti, access_ends FROM refresh_tokens WHERE token_id = t.id ORDER BY expires LIMIT 1) AS r
WHERE  t.id = :token_id AND t.owner_id = :owner_id AND u.disabled IS NULL;

-- name: token_plain
-- A login whose token ends by itself: its row is what lists and revokes it. No row: as in token_add. `many`: none was made.
WITH may AS (
    SELECT id, extract(epoch FROM greatest(date_trunc('second', now()), tokens_from))::bigint AS iat
    FROM   users
    WHERE  id = :user_id AND disabled IS NULL AND (:checked_hash::text IS NULL OR password_hash = :checked_hash)
    FOR    SHARE
), many AS MATERIALIZED (
    SELECT FROM tokens WHERE owner_id = :user_id AND ends > now() OFFSET :most::bigint - 1 LIMIT 1
), made AS (
    INSERT INTO tokens (owner_id, name, scope, jti, ends)
    SELECT id, 'login', 'user', :jti, :access_ends FROM may WHERE NOT EXISTS (SELECT FROM many)
)
SELECT iat, EXISTS (SELECT FROM many) AS many FROM may;

-- name: token_site
SELECT id FROM sites WHERE id = :site AND owner_id = :owner_id;

-- name: token_exchange
-- Use one up, add the next. No row: unknown, expired, or used before (token_used says which).
WITH old AS (
    UPDATE refresh_tokens r SET used = now(), proof = :proof
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
-- One that was used before: a reply that got lost, if its successor is unused, and it is young or comes with the proof that who
-- used it asks again; else it was stolen. An access token that has ended meanwhile is replaced.
WITH found AS (
    SELECT r.token_id, t.owner_id, u.username, t.scope, t.site_id, next.jti, next.access_ends,
           extract(epoch FROM greatest(date_trunc('second', now()), u.tokens_from))::bigint AS iat,
           coalesce((r.used > now() - :grace::interval OR r.proof = :proof) AND next.used IS NULL AND next.expires > now(),
                    false) AS again
    FROM   refresh_tokens r
    JOIN   tokens t ON t.id = r.token_id
    JOIN   users u ON u.id = t.owner_id
    LEFT   JOIN refresh_tokens next ON next.hash = :next_hash
    WHERE  r.hash = :hash AND r.used IS NOT NULL AND u.disabled IS NULL
), late AS (
    UPDATE refresh_tokens n SET jti = :jti, access_ends = :access_ends
    FROM   found f
    WHERE  f.again AND n.hash = :next_hash AND n.used IS NULL AND n.access_ends <= now()
    RETURNING n.jti, n.access_ends
)
SELECT f.token_id, f.owner_id, f.username, f.scope, f.site_id, f.iat, f.again, coalesce(l.jti, f.jti) AS jti,
       coalesce(l.access_ends, f.access_ends) AS access_ends
FROM   found f LEFT JOIN late l ON true;

-- name: token_of_hash
SELECT t.id, t.owner_id, u.username
FROM   refresh_tokens r
JOIN   tokens t ON t.id = r.token_id
JOIN   users u ON u.id = t.owner_id
WHERE  r.hash = :hash;

-- name: token_revoke
-- The token, all its refresh tokens (by the foreign key) and the access tokens that are still good.
WITH gone AS (
    DELETE FROM tokens WHERE id = :token_id AND owner_id = :token_owner RETURNING id, jti, ends
), good AS (
    SELECT r.jti, r.access_ends AS ends FROM refresh_tokens r JOIN gone ON gone.id = r.token_id WHERE r.access_ends > now()
    UNION ALL
    SELECT jti, ends FROM gone WHERE ends > now()
), ended AS (
    INSERT INTO revoked_tokens (jti, expires, owner_id) SELECT jti, ends, :token_owner FROM good
    ON CONFLICT (jti) DO NOTHING
    RETURNING jti, expires
)
SELECT (SELECT count(*) FROM gone) AS gone, jti, extract(epoch FROM expires)::bigint AS expires,
       (SELECT count(*)
        FROM   revoked_tokens r JOIN users u ON u.id = r.owner_id
        WHERE  r.owner_id = :token_owner AND r.expires > now() AND r.since > coalesce(u.tokens_from, '-infinity')) AS before
FROM   (SELECT) AS one LEFT JOIN ended ON true;

-- name: token_cut
-- Instead of many revocations one time for the user: access tokens that are older are good no more, refresh tokens give out
-- younger ones. As in admin.sql.
UPDATE users
SET    tokens_from = date_trunc('second', clock_timestamp()) + interval '2 seconds'
WHERE  id = :token_owner;

-- name: token_rows
SELECT id, name, scope, site_id, created, last_used, ends AS expiration
FROM   tokens
WHERE  owner_id = :owner_id AND (ends IS NULL OR ends > now())
ORDER  BY id
LIMIT  10000;

-- name: token_ended
SELECT jti::text AS jti, extract(epoch FROM expires)::bigint AS expires
FROM   revoked_tokens
WHERE  expires > now()
ORDER  BY expires DESC
LIMIT  100000;

-- name: token_forget
-- In pieces. A token whose last refresh token has expired can never be used again. Gateways know of a cut by now.
WITH old AS (
    DELETE FROM refresh_tokens
    WHERE  ctid = ANY (ARRAY(SELECT ctid FROM refresh_tokens WHERE expires < now() LIMIT 1000))
    RETURNING token_id
), plain AS (
    DELETE FROM tokens WHERE ctid = ANY (ARRAY(SELECT ctid FROM tokens WHERE ends < now() LIMIT 1000))
    RETURNING id
), revoked AS (
    DELETE FROM revoked_tokens WHERE expires < now() - interval '1 minute'
), cut AS (
    DELETE FROM revoked_tokens r USING users u
    WHERE  u.id = r.owner_id AND r.since < u.tokens_from - interval '2 seconds' AND u.tokens_from < now() - interval '1 minute'
), tokens AS (
    DELETE FROM tokens t USING old
    WHERE  t.id = old.token_id AND NOT EXISTS (SELECT FROM refresh_tokens r WHERE r.token_id = t.id AND r.expires >= now())
)
SELECT greatest((SELECT count(*) FROM old), (SELECT count(*) FROM plain)) AS n;
