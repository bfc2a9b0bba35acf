-- claim candidates
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`processed_at`, q.`payload`, q.`since`, q.`raw`, CAST('it''s {' || CASE typeof(q.`id`) WHEN 'blob' THEN hex(q.`id`) ELSE ifnull(q.`id`, '') END || '} \ ' || CASE typeof(q.`since`) WHEN 'blob' THEN hex(q.`since`) ELSE ifnull(q.`since`, '') END || ' ' || CASE typeof(q.`raw`) WHEN 'blob' THEN hex(q.`raw`) ELSE ifnull(q.`raw`, '') END AS TEXT) FROM (SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`processed_at`, q.`payload`, q.`since`, q.`raw` FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND q.`processed_at` IS NULL AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 1) AS q ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 1;

-- claim candidates
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`processed_at`, q.`payload`, q.`since`, q.`raw`, CAST('it''s {' || CASE typeof(q.`id`) WHEN 'blob' THEN hex(q.`id`) ELSE ifnull(q.`id`, '') END || '} \ ' || CASE typeof(q.`since`) WHEN 'blob' THEN hex(q.`since`) ELSE ifnull(q.`since`, '') END || ' ' || CASE typeof(q.`raw`) WHEN 'blob' THEN hex(q.`raw`) ELSE ifnull(q.`raw`, '') END AS TEXT) FROM (SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`processed_at`, q.`payload`, q.`since`, q.`raw` FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND q.`processed_at` IS NULL AND CAST('it''s {' || CASE typeof(q.`id`) WHEN 'blob' THEN hex(q.`id`) ELSE ifnull(q.`id`, '') END || '} \ ' || CASE typeof(q.`since`) WHEN 'blob' THEN hex(q.`since`) ELSE ifnull(q.`since`, '') END || ' ' || CASE typeof(q.`raw`) WHEN 'blob' THEN hex(q.`raw`) ELSE ifnull(q.`raw`, '') END AS TEXT) NOT IN ($3, $4) AND q.`id` NOT IN ($5) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 2) AS q ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 2;

-- claim
UPDATE `app`.`mail_jobs` SET `attempt` = CASE WHEN typeof(`attempt`) <> 'integer' THEN 2 WHEN `attempt` > 5 THEN `attempt` ELSE `attempt` + 1 END WHERE `id` IN ($1, $2);

-- finish
UPDATE `app`.`mail_jobs` AS q SET `processed_at` = $2 WHERE q.`id` = $1 AND q.`processed_at` IS NULL RETURNING `id`;

-- postpone
UPDATE `app`.`mail_jobs` AS q SET `retry_after` = $2 WHERE q.`id` = $1 AND q.`processed_at` IS NULL RETURNING `id`;

-- release
UPDATE `app`.`mail_jobs` AS q SET `attempt` = q.`attempt` - $2 WHERE q.`id` = $1 AND q.`processed_at` IS NULL AND q.`attempt` = $3 RETURNING `id`;

-- move
UPDATE `app`.`mail_jobs` AS q SET `name` = $2 WHERE q.`id` = $1 AND q.`processed_at` IS NULL RETURNING `id`;

-- move insert
INSERT INTO `app`.`dead` (`id`, `name`, `priority`, `retry_after`, `attempt`, `processed_at`, `payload`, `since`, `raw`) SELECT `id`, `name`, `priority`, `retry_after`, `attempt`, `processed_at`, `payload`, `since`, `raw` FROM `app`.`mail_jobs` AS q WHERE q.`id` = $1 AND q.`processed_at` IS NULL RETURNING `id`;

-- move delete
DELETE FROM `app`.`mail_jobs` AS q WHERE q.`id` = $1 AND q.`processed_at` IS NULL RETURNING `id`;
