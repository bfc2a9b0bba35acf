-- claim guard ('`mail_jobs`:a', 'app')
SELECT COALESCE(GET_LOCK(IF(CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) <= 64 AND LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) = CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AND CAST(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1) AS BINARY) = CAST(LOWER(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AS BINARY), CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), SHA2(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), 256)), 0), 0);

-- claim ('<now>', 'a', 7, 7)
SELECT q.`id`, q.`name`, q.`retry_after`, q.`attempt`, q.`payload` FROM (SELECT q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`id` = COALESCE((SELECT h.`id` FROM `app`.`mail_jobs` AS h WHERE h.`name` = $2 AND CAST(h.`name` AS BINARY) = CAST($2 AS BINARY) AND h.`id` NOT IN ($4) AND h.`retry_after` IS NULL ORDER BY h.`id` LIMIT 1), (SELECT h.`id` FROM `app`.`mail_jobs` AS h WHERE h.`name` = $2 AND CAST(h.`name` AS BINARY) = CAST($2 AS BINARY) AND h.`id` NOT IN ($4) AND h.`retry_after` IS NOT NULL ORDER BY h.`retry_after`, h.`id` LIMIT 1)) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND q.`id` NOT IN ($3) LIMIT 1) AS due STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) LIMIT 1 FOR UPDATE SKIP LOCKED;

-- claim guard ('`mail_jobs`:a', 'app')
SELECT COALESCE(GET_LOCK(IF(CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) <= 64 AND LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) = CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AND CAST(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1) AS BINARY) = CAST(LOWER(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AS BINARY), CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), SHA2(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), 256)), 0), 0);

-- claim ('<now>', 'a', 7, 7)
SELECT q.`id`, q.`name`, q.`retry_after`, q.`attempt`, q.`payload` FROM (SELECT q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`id` = COALESCE((SELECT h.`id` FROM `app`.`mail_jobs` AS h WHERE h.`name` = $2 AND CAST(h.`name` AS BINARY) = CAST($2 AS BINARY) AND h.`id` NOT IN ($4) AND h.`retry_after` IS NULL ORDER BY h.`id` LIMIT 1), (SELECT h.`id` FROM `app`.`mail_jobs` AS h WHERE h.`name` = $2 AND CAST(h.`name` AS BINARY) = CAST($2 AS BINARY) AND h.`id` NOT IN ($4) AND h.`retry_after` IS NOT NULL ORDER BY h.`retry_after`, h.`id` LIMIT 1)) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND q.`id` NOT IN ($3) LIMIT 1) AS due STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) LIMIT 1 FOR UPDATE SKIP LOCKED;

-- finish (1,)
DELETE q FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1);

-- give back (1,)
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `attempt` = CASE WHEN `attempt` > 9223372036854775806 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($1);

-- postpone ('<due>', 1)
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `retry_after` = $1, `attempt` = CASE WHEN `attempt` > 9223372036854775806 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($2);

-- move ('dead', 1)
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `name` = $1 WHERE `id` IN ($2);

-- move insert (1,)
INSERT INTO `app`.`dead` (`id`, `name`, `retry_after`, `attempt`, `payload`) SELECT `id`, `name`, `retry_after`, `attempt`, `payload` FROM `app`.`mail_jobs` WHERE `id` IN ($1);

-- move delete (1,)
DELETE q FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1);

-- guard release ('`mail_jobs`:a', 'app')
SELECT COALESCE(RELEASE_LOCK(IF(CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) <= 64 AND LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) = CHAR_LENGTH(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AND CAST(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1) AS BINARY) = CAST(LOWER(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1)) AS BINARY), CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), SHA2(CONCAT(CONVERT(LOWER($2) USING utf8mb4), '.', $1), 256))), 0);
