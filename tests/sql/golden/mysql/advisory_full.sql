-- claim candidates
SELECT q.`id`, CONVERT(CONCAT_WS('', $3, CONVERT(q.`id` USING utf8mb4), $4, CONVERT(q.`since` USING utf8mb4), $5, LOWER(HEX(q.`raw`))) USING utf8mb4) AS inboxkit_key FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND q.`processed_at` IS NULL AND IS_USED_LOCK(IF(CHAR_LENGTH(CONCAT(CONVERT(LOWER($6) USING utf8mb4), '.', CONVERT(CONCAT_WS('', $3, CONVERT(q.`id` USING utf8mb4), $4, CONVERT(q.`since` USING utf8mb4), $5, LOWER(HEX(q.`raw`))) USING utf8mb4))) <= 64 AND LENGTH(CONCAT(CONVERT(LOWER($6) USING utf8mb4), '.', CONVERT(CONCAT_WS('', $3, CONVERT(q.`id` USING utf8mb4), $4, CONVERT(q.`since` USING utf8mb4), $5, LOWER(HEX(q.`raw`))) USING utf8mb4))) = CHAR_LENGTH(CONCAT(CONVERT(LOWER($6) USING utf8mb4), '.', CONVERT(CONCAT_WS('', $3, CONVERT(q.`id` USING utf8mb4), $4, CONVERT(q.`since` USING utf8mb4), $5, LOWER(HEX(q.`raw`))) USING utf8mb4))) AND CAST(CONCAT(CONVERT(LOWER($6) USING utf8mb4), '.', CONVERT(CONCAT_WS('', $3, CONVERT(q.`id` USING utf8mb4), $4, CONVERT(q.`since` USING utf8mb4), $5, LOWER(HEX(q.`raw`))) USING utf8mb4)) AS BINARY) = CAST(LOWER(CONCAT(CONVERT(LOWER($6) USING utf8mb4), '.', CONVERT(CONCAT_WS('', $3, CONVERT(q.`id` USING utf8mb4), $4, CONVERT(q.`since` USING utf8mb4), $5, LOWER(HEX(q.`raw`))) USING utf8mb4))) AS BINARY), CONCAT(CONVERT(LOWER($6) USING utf8mb4), '.', CONVERT(CONCAT_WS('', $3, CONVERT(q.`id` USING utf8mb4), $4, CONVERT(q.`since` USING utf8mb4), $5, LOWER(HEX(q.`raw`))) USING utf8mb4)), SHA2(CONCAT(CONVERT(LOWER($6) USING utf8mb4), '.', CONVERT(CONCAT_WS('', $3, CONVERT(q.`id` USING utf8mb4), $4, CONVERT(q.`since` USING utf8mb4), $5, LOWER(HEX(q.`raw`))) USING utf8mb4)), 256))) IS NULL AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 3;

-- claim lock
SELECT COALESCE(GET_LOCK(IF(CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) <= 64 AND LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) = CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AND CAST(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1) AS BINARY) = CAST(LOWER(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AS BINARY), CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), SHA2(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), 256)), 0), 0);

-- claim due
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`processed_at`, q.`payload`, q.`since`, q.`raw` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` = $3 AND q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND q.`processed_at` IS NULL AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND CAST(CONVERT(CONCAT_WS('', $4, CONVERT(q.`id` USING utf8mb4), $5, CONVERT(q.`since` USING utf8mb4), $6, LOWER(HEX(q.`raw`))) USING utf8mb4) AS BINARY) = CAST($7 AS BINARY);

-- claim
UPDATE `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) JOIN (SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` = $4 AND q.`name` = $3 AND CAST(q.`name` AS BINARY) = CAST($3 AS BINARY) AND q.`processed_at` IS NULL AND (q.`retry_after` IS NULL OR q.`retry_after` <= $2) AND CAST(CONVERT(CONCAT_WS('', $5, CONVERT(q.`id` USING utf8mb4), $6, CONVERT(q.`since` USING utf8mb4), $7, LOWER(HEX(q.`raw`))) USING utf8mb4) AS BINARY) = CAST($8 AS BINARY) AND q.`attempt` <=> $1 LIMIT 1 FOR UPDATE SKIP LOCKED) AS due ON q.`id` = due.`id` SET q.`attempt` = CASE WHEN q.`attempt` > 5 THEN q.`attempt` ELSE COALESCE(q.`attempt`, 1) + 1 END;

-- unlock
SELECT COALESCE(RELEASE_LOCK(IF(CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) <= 64 AND LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) = CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AND CAST(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1) AS BINARY) = CAST(LOWER(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AS BINARY), CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), SHA2(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), 256))), 0);

-- finish
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `processed_at` = $1 WHERE `id` IN ($2) AND `app`.`mail_jobs`.`processed_at` IS NULL;

-- postpone
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `retry_after` = $1 WHERE `id` IN ($2) AND `app`.`mail_jobs`.`processed_at` IS NULL;

-- release
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `attempt` = `attempt` - $1 WHERE `id` IN ($3) AND `app`.`mail_jobs`.`processed_at` IS NULL AND `attempt` = $2;

-- move
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `name` = $1 WHERE `id` IN ($2) AND `app`.`mail_jobs`.`processed_at` IS NULL;

-- move find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` = $1 AND q.`processed_at` IS NULL FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `name`, `priority`, `retry_after`, `attempt`, `processed_at`, `payload`, `since`, `raw`) SELECT `id`, `name`, `priority`, `retry_after`, `attempt`, `processed_at`, `payload`, `since`, `raw` FROM `app`.`mail_jobs` WHERE `id` IN ($1);

-- move delete
DELETE q FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1);
