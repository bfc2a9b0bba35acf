-- claim (7,)
SELECT q.`id`, q.`done` FROM (SELECT q.`id` FROM `email_jobs` AS q WHERE q.`done` IS NULL AND q.`id` NOT IN ($1) ORDER BY q.`id` LIMIT 64) AS due STRAIGHT_JOIN `email_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`done` IS NULL LIMIT 1 FOR UPDATE SKIP LOCKED;

-- claim (7,)
SELECT q.`id`, q.`done` FROM (SELECT q.`id` FROM `email_jobs` AS q WHERE q.`done` IS NULL AND q.`id` NOT IN ($1) ORDER BY q.`id` LIMIT 64) AS due STRAIGHT_JOIN `email_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`done` IS NULL LIMIT 10 FOR UPDATE SKIP LOCKED;

-- finish (datetime.datetime(2030, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), 1)
UPDATE `email_jobs` FORCE INDEX (`PRIMARY`) SET `done` = $1 WHERE `id` IN ($2);

-- move insert (1,)
INSERT INTO `app`.`dead` (`id`, `done`) SELECT `id`, `done` FROM `email_jobs` WHERE `id` IN ($1);

-- move delete (1,)
DELETE q FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1);
