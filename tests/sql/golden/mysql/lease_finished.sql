-- claim due
SELECT q.`id`, q.`processed_at`, q.`locked_until`, q.`payload` FROM (SELECT q.`id` FROM ((SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`email_jobs_queue`) WHERE q.`processed_at` IS NULL AND q.`locked_until` IS NULL ORDER BY q.`id` LIMIT 42) UNION ALL (SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`email_jobs_queue`) WHERE q.`processed_at` IS NULL AND q.`locked_until` <= $1 ORDER BY q.`id` LIMIT 42)) AS q ORDER BY q.`id` LIMIT 42) AS due STRAIGHT_JOIN `email_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`processed_at` IS NULL AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) LIMIT 10 FOR UPDATE SKIP LOCKED;

-- claim
UPDATE `email_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1 WHERE `id` IN ($2);

-- renew find
SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE SKIP LOCKED;

-- renew
UPDATE `email_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- renew check
SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4)));

-- release find
SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- release
UPDATE `email_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE `id` IN ($1, $2);

-- release
UPDATE `email_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)));

-- finish find
SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- finish
UPDATE `email_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `processed_at` = $1 WHERE `id` IN ($2, $3);

-- finish
UPDATE `email_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `processed_at` = $1 WHERE ((q.`id` = $4 AND q.`locked_until` IN ($2, $3)));

-- give back find
SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- give back
UPDATE `email_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE `id` IN ($1, $2);

-- give back
UPDATE `email_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)));

-- hold find
SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- hold
UPDATE `email_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- hold find
SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2))) FOR UPDATE;

-- hold
UPDATE `email_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1 WHERE `id` IN ($2, $3);

-- move find
SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `processed_at`, `locked_until`, `payload`) SELECT `id`, `processed_at`, NULL, `payload` FROM `email_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `email_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `email_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- move find
SELECT q.`id` FROM `email_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `processed_at`, `locked_until`, `payload`) SELECT `id`, `processed_at`, NULL, `payload` FROM `email_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `email_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `email_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- settle check
SELECT `id` FROM `email_jobs` WHERE `id` IN ($1, $2) AND `processed_at` IS NULL;
