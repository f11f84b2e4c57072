-- transfer.sql - reading transfer items; what changes them is item_lock and item_step of common/lifecycle

-- name: transfer_read
SELECT id, job_id, site_id, direction, state, recursive, local_path, remote_path, location_alias, task_id, transfer_info
FROM   transfer_items
WHERE  id = ANY (:ids::bigint[]) AND owner_id = :owner_id AND (:token_site::bigint = 0 OR site_id = :token_site)
ORDER  BY id;

-- name: transfer_missing
-- Which of the ids are not there, not yours, or not of the token's site.
SELECT w.id
FROM   unnest(:ids::bigint[]) AS w (id)
WHERE  NOT EXISTS (SELECT FROM transfer_items t
                   WHERE t.id = w.id AND t.owner_id = :owner_id
                     AND (:token_site::bigint = 0 OR t.site_id = :token_site))
ORDER  BY w.id;
