-- claim ('<now>', 'a', 7)
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`payload` FROM (SELECT q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND q.`id` NOT IN ($3) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 64) AS due STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) LIMIT 1 FOR UPDATE SKIP LOCKED;

-- claim ('<now>', 'a', 7)
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`payload` FROM (SELECT q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND q.`id` NOT IN ($3) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 64) AS due STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) LIMIT 10 FOR UPDATE SKIP LOCKED;

-- finish (1,)
DELETE q FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1);

-- give back (1,)
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `attempt` = CASE WHEN `attempt` > 9223372036854775806 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($1);

-- postpone ('<due>', 1)
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `retry_after` = $1, `attempt` = CASE WHEN `attempt` > 9223372036854775806 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($2);

-- move ('dead', 1)
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `name` = $1 WHERE `id` IN ($2);

-- move insert (1,)
INSERT INTO `app`.`dead` (`id`, `name`, `priority`, `retry_after`, `attempt`, `payload`) SELECT `id`, `name`, `priority`, `retry_after`, `attempt`, `payload` FROM `app`.`mail_jobs` WHERE `id` IN ($1);

-- move delete (1,)
DELETE q FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1);
