-- claim due
SELECT q.`id`, q.`target`, q.`attempt`, q.`locked_until`, q.`payload` FROM (SELECT q.`id`, q.`target` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` = (SELECT h.`id` FROM `crm_jobs` AS h WHERE h.`target` = $2 AND CAST(h.`target` AS BINARY) = CAST($2 AS BINARY) ORDER BY h.`id` LIMIT 1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $1) LIMIT 1) AS due STRAIGHT_JOIN `crm_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`target` = due.`target` AND CAST(q.`target` AS BINARY) = CAST(due.`target` AS BINARY) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) FOR UPDATE SKIP LOCKED;

-- claim
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1, `attempt` = CASE WHEN `attempt` > 5 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($2);

-- claim check
(SELECT 0, w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $3 AND CAST(w.`target` AS BINARY) = CAST($3 AS BINARY) AND w.`locked_until` > $1 AND w.`locked_until` < $2 LIMIT 1 FOR UPDATE NOWAIT) UNION ALL (SELECT 0, w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $3 AND CAST(w.`target` AS BINARY) = CAST($3 AS BINARY) AND w.`locked_until` = $2 AND NOT COALESCE(w.`id` = $4, FALSE) LIMIT 1 FOR UPDATE NOWAIT) UNION ALL (SELECT 0, w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $3 AND CAST(w.`target` AS BINARY) = CAST($3 AS BINARY) AND w.`locked_until` > $2 ORDER BY w.`locked_until` DESC LIMIT 1 FOR UPDATE NOWAIT);

-- claim undo
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `attempt` = $2, `locked_until` = $3 WHERE `id` IN ($1) AND `locked_until` = $4;

-- renew find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = q.`target` AND CAST(w.`target` AS BINARY) = CAST(q.`target` AS BINARY) AND w.`id` <> q.`id` AND w.`locked_until` > $7) FOR UPDATE SKIP LOCKED;

-- renew
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- renew check
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = q.`target` AND CAST(w.`target` AS BINARY) = CAST(q.`target` AS BINARY) AND w.`id` <> q.`id` AND w.`locked_until` > $7);

-- release find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- release
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `attempt` = `attempt` - CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- release
UPDATE `crm_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `attempt` = `attempt` - $1 WHERE ((q.`id` = $4 AND q.`locked_until` IN ($2, $3) AND q.`attempt` = $5));

-- finish find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- finish
DELETE q FROM (SELECT q.`id` FROM `crm_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `crm_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- finish
DELETE q FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4));

-- give back find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- give back
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE `id` IN ($1, $2);

-- give back
UPDATE `crm_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4));

-- hold find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- hold
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- hold find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4)) FOR UPDATE;

-- hold
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1 WHERE `id` IN ($2, $3);

-- move find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- move
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `target` = $1 WHERE `id` IN ($2, $3);

-- move
UPDATE `crm_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `target` = $1 WHERE ((q.`id` = $4 AND q.`locked_until` IN ($2, $3) AND q.`attempt` = $5));

-- move find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4) OR (q.`id` = $6 AND q.`locked_until` IN ($5))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `target`, `attempt`, `locked_until`, `payload`) SELECT `id`, `target`, `attempt`, NULL, `payload` FROM `crm_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `crm_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `crm_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- move find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2) AND q.`attempt` = $4)) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `target`, `attempt`, `locked_until`, `payload`) SELECT `id`, `target`, `attempt`, NULL, `payload` FROM `crm_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `crm_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `crm_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- settle check
SELECT `id` FROM `crm_jobs` WHERE `id` IN ($1, $2);
