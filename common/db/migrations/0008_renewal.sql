-- 0008_renewal.sql - whoever used a refresh token may repeat itself, however late
--
-- Services of the version before go on meanwhile and afterwards: they leave it NULL, and know only the moment (refresh_grace).

-- Digest of the secret Idempotency-Key under which it was used; NULL: none that proves anything.
ALTER TABLE refresh_tokens ADD COLUMN proof bytea CHECK (length(proof) = 32);
