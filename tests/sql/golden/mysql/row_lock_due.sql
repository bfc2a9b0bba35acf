-- claim ('<now>', 7)
SELECT q.`id`, q.`retry_after`, q.`attempt`, q.`payload` FROM (SELECT q.`id` FROM ((SELECT q.`retry_after`, q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`id` NOT IN ($2) AND q.`retry_after` IS NULL ORDER BY q.`id` LIMIT 64) UNION ALL (SELECT q.`retry_after`, q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`id` NOT IN ($2) AND q.`retry_after` <= $1 ORDER BY q.`retry_after`, q.`id` LIMIT 64)) AS q ORDER BY q.`retry_after`, q.`id` LIMIT 64) AS due STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE (q.`retry_after` IS NULL OR q.`retry_after` <= $1) LIMIT 1 FOR UPDATE SKIP LOCKED;

-- claim ('<now>', 7)
SELECT q.`id`, q.`retry_after`, q.`attempt`, q.`payload` FROM (SELECT q.`id` FROM ((SELECT q.`retry_after`, q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`id` NOT IN ($2) AND q.`retry_after` IS NULL ORDER BY q.`id` LIMIT 64) UNION ALL (SELECT q.`retry_after`, q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`id` NOT IN ($2) AND q.`retry_after` <= $1 ORDER BY q.`retry_after`, q.`id` LIMIT 64)) AS q ORDER BY q.`retry_after`, q.`id` LIMIT 64) AS due STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE (q.`retry_after` IS NULL OR q.`retry_after` <= $1) LIMIT 10 FOR UPDATE SKIP LOCKED;

-- finish (1,)
DELETE q FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1);

-- give back (1,)
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `attempt` = CASE WHEN `attempt` > 9223372036854775806 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($1);

-- postpone ('<due>', 1)
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `retry_after` = $1, `attempt` = CASE WHEN `attempt` > 9223372036854775806 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($2);

-- move insert (1,)
INSERT INTO `app`.`dead` (`id`, `retry_after`, `attempt`, `payload`) SELECT `id`, `retry_after`, `attempt`, `payload` FROM `app`.`mail_jobs` WHERE `id` IN ($1);

-- move delete (1,)
DELETE q FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1);
