-- transfer.sql - reading transfer items; what changes them is item_lock and item_step of common/lifecycle

-- name: transfer_get
SELECT id, job_id, direction, state, recursive, local_path, remote_path, location_alias, task_id, transfer_info
FROM   transfer_items
WHERE  id = :id AND owner_id = :owner_id;
