-- claim due
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`locked_until`, q.`headers`, q.`payload`, q.`note` FROM (SELECT q.`id` FROM ((SELECT q.`priority`, q.`retry_after`, q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`mail_jobs_queue`) WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND q.`locked_until` IS NULL ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 42) UNION ALL (SELECT q.`priority`, q.`retry_after`, q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`mail_jobs_queue`) WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND q.`locked_until` <= $1 ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 42)) AS q ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 42) AS due STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) LIMIT 10 FOR UPDATE SKIP LOCKED;

-- claim
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1, `attempt` = CASE WHEN `attempt` > 5 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($2);

-- renew find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE SKIP LOCKED;

-- renew
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- renew check
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5)));

-- release find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- release
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `attempt` = `attempt` - CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- release
UPDATE `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `attempt` = `attempt` - $1 WHERE ((q.`id` = $4 AND q.`locked_until` IN ($2, $3) AND q.`attempt` = $5));

-- finish find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- finish
DELETE q FROM (SELECT q.`id` FROM `app`.`mail_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- finish
DELETE q FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4));

-- give back find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- give back
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE `id` IN ($1, $2);

-- give back
UPDATE `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4));

-- hold find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- hold
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- hold find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4)) FOR UPDATE;

-- hold
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1 WHERE `id` IN ($2, $3);

-- postpone find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- postpone
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `retry_after` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- postpone
UPDATE `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `retry_after` = $1 WHERE ((q.`id` = $4 AND q.`locked_until` IN ($2, $3) AND q.`attempt` = $5));

-- move find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- move
UPDATE `app`.`mail_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `name` = $1 WHERE `id` IN ($2, $3);

-- move
UPDATE `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `name` = $1 WHERE ((q.`id` = $4 AND q.`locked_until` IN ($2, $3) AND q.`attempt` = $5));

-- move find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `name`, `priority`, `retry_after`, `attempt`, `locked_until`, `headers`, `payload`, `note`) SELECT `id`, `name`, `priority`, `retry_after`, `attempt`, NULL, `headers`, `payload`, `note` FROM `app`.`mail_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `app`.`mail_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- move find
SELECT q.`id` FROM `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4)) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `name`, `priority`, `retry_after`, `attempt`, `locked_until`, `headers`, `payload`, `note`) SELECT `id`, `name`, `priority`, `retry_after`, `attempt`, NULL, `headers`, `payload`, `note` FROM `app`.`mail_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `app`.`mail_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- settle check
SELECT `id` FROM `app`.`mail_jobs` WHERE `id` IN ($1, $2);
