-- audit.sql - who did what

-- name: audit_add
INSERT INTO audit (user_id, actor, action, outcome, peer, request, detail)
VALUES (:audit_user, :actor, :action, :outcome, :peer, :request::text::uuid, :detail);

-- name: audit_old
-- In pieces of 10,000.
SELECT audit_forget(:age::interval) AS n;
