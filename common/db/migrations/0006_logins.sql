-- 0006_logins.sql - log-ins whose token cannot be renewed are rows, too: listed and revoked like all others
--
-- Services of the version before go on meanwhile and afterwards; what they sign has no row yet.
ALTER TABLE tokens
    ADD COLUMN jti  uuid,        -- of the one access token of such a log-in; of the others refresh_tokens knows
    ADD COLUMN ends timestamptz,
    ADD CHECK ((jti IS NULL) = (ends IS NULL));
CREATE INDEX tokens_plain      ON tokens (owner_id, ends) WHERE ends IS NOT NULL;
CREATE INDEX tokens_plain_ends ON tokens (ends) WHERE ends IS NOT NULL;

-- Gateways hold all of these in memory: nobody may have thousands (token.sql, token_cut).
ALTER TABLE revoked_tokens
    ADD COLUMN owner_id bigint,
    ADD COLUMN since    timestamptz NOT NULL DEFAULT now();
CREATE INDEX revoked_tokens_owner ON revoked_tokens (owner_id, since) WHERE owner_id IS NOT NULL;
