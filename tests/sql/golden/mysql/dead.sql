-- dead list ('a.dead',)
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`done`, q.`locked_until`, q.`payload` FROM (SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`done`, q.`locked_until`, q.`payload` FROM `app`.`mail_jobs` AS q IGNORE INDEX FOR ORDER BY (`PRIMARY`) WHERE q.`name` = $1 AND q.`done` IS NULL AND q.`locked_until` IS NULL UNION ALL SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`done`, q.`locked_until`, q.`payload` FROM `app`.`mail_jobs` AS q IGNORE INDEX FOR ORDER BY (`PRIMARY`) WHERE q.`name` = $1 AND q.`done` IS NULL AND q.`locked_until` IS NOT NULL) AS q ORDER BY q.`id` LIMIT 50;

-- dead list ('a.dead', 7, datetime.datetime(2030, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))
SELECT q.`id` FROM (SELECT q.`id` FROM `app`.`mail_jobs` AS q IGNORE INDEX FOR ORDER BY (`PRIMARY`) WHERE q.`name` = $1 AND q.`done` IS NULL AND q.`id` > $2 AND q.`retry_after` <= $3 AND q.`locked_until` IS NULL UNION ALL SELECT q.`id` FROM `app`.`mail_jobs` AS q IGNORE INDEX FOR ORDER BY (`PRIMARY`) WHERE q.`name` = $1 AND q.`done` IS NULL AND q.`id` > $2 AND q.`retry_after` <= $3 AND q.`locked_until` IS NOT NULL) AS q ORDER BY q.`id` LIMIT 500;

-- dead list (7, 8)
SELECT q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`id` IN ($1, $2) ORDER BY q.`id` LIMIT 2;

-- dead lock (7, 8, 'a.dead', '<now>')
SELECT q.`id`, q.`name` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1, $2) AND q.`name` = $3 AND q.`done` IS NULL AND (q.`locked_until` IS NULL OR q.`locked_until` <= $4) FOR UPDATE SKIP LOCKED;

-- dead lock (7, 'x.', '<now>')
SELECT q.`id`, q.`name` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` IN ($1) AND (char_length(q.`name`) >= 2 AND substr(q.`name`, 1, 2) = $2) AND q.`done` IS NULL AND (q.`locked_until` IS NULL OR q.`locked_until` <= $3) FOR UPDATE SKIP LOCKED;

-- requeue ('a', '<now>', 7, 8)
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `name` = $1, `attempt` = 1, `locked_until` = NULL, `retry_after` = CASE WHEN `retry_after` > $2 THEN $2 ELSE `retry_after` END WHERE `id` IN ($3, $4);

-- requeue check (7, 8)
SELECT `id` FROM `app`.`jobs` WHERE `id` IN ($1, $2);

-- requeue insert ('<now>', 7, 8)
INSERT INTO `app`.`jobs` (`id`, `retry_after`, `attempt`, `locked_until`, `payload`) SELECT `id`, CASE WHEN `retry_after` > $1 THEN $1 ELSE `retry_after` END, 1, NULL, `payload` FROM `app`.`mail_jobs` WHERE `id` IN ($2, $3);

-- purge (7,)
DELETE FROM `app`.`mail_jobs` WHERE `id` IN ($1);

-- purge (8,)
DELETE FROM `app`.`mail_jobs` WHERE `id` IN ($1);

-- purge (7,)
DELETE FROM `app`.`mail_jobs` WHERE `id` IN ($1);

-- purge (8,)
DELETE FROM `app`.`mail_jobs` WHERE `id` IN ($1);
