-- claim due
SELECT q.`id`, q.`due`, q.`locked_until` FROM (SELECT q.`id` FROM ((SELECT q.`due`, q.`id` FROM `mail_jobs` AS q FORCE INDEX (`mail_jobs_queue`) WHERE q.`due` IS NULL AND q.`locked_until` IS NULL ORDER BY q.`id` LIMIT 42) UNION ALL (SELECT q.`due`, q.`id` FROM `mail_jobs` AS q FORCE INDEX (`mail_jobs_queue`) WHERE q.`due` <= $1 AND q.`locked_until` IS NULL ORDER BY q.`due`, q.`id` LIMIT 42) UNION ALL (SELECT q.`due`, q.`id` FROM `mail_jobs` AS q FORCE INDEX (`mail_jobs_queue`) WHERE (q.`due` IS NULL OR q.`due` <= $1) AND q.`locked_until` <= $1 ORDER BY q.`due`, q.`id` LIMIT 42)) AS q ORDER BY q.`due`, q.`id` LIMIT 42) AS due STRAIGHT_JOIN `mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE (q.`due` IS NULL OR q.`due` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) LIMIT 10 FOR UPDATE SKIP LOCKED;

-- claim
UPDATE `mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1 WHERE `id` IN ($2);

-- renew find
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE SKIP LOCKED;

-- renew
UPDATE `mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- renew check
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4)));

-- release find
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- release
UPDATE `mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE `id` IN ($1, $2);

-- release
UPDATE `mail_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)));

-- finish find
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- finish
DELETE q FROM (SELECT q.`id` FROM `mail_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- finish
DELETE q FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)));

-- give back find
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- give back
UPDATE `mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE `id` IN ($1, $2);

-- give back
UPDATE `mail_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)));

-- hold find
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- hold
UPDATE `mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- hold find
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2))) FOR UPDATE;

-- hold
UPDATE `mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1 WHERE `id` IN ($2, $3);

-- postpone find
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- postpone
UPDATE `mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `due` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- postpone
UPDATE `mail_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `due` = $1 WHERE ((q.`id` = $4 AND q.`locked_until` IN ($2, $3)));

-- move find
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `due`, `locked_until`) SELECT `id`, `due`, NULL FROM `mail_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `mail_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- move find
SELECT q.`id` FROM `mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `due`, `locked_until`) SELECT `id`, `due`, NULL FROM `mail_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `mail_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- settle check
SELECT `id` FROM `mail_jobs` WHERE `id` IN ($1, $2);
