-- claim due
SELECT q.`id`, q.`target`, q.`due`, q.`locked_until` FROM (SELECT q.`id`, q.`target` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` = COALESCE((SELECT h.`id` FROM `crm_jobs` AS h WHERE h.`target` = $2 AND CAST(h.`target` AS BINARY) = CAST($2 AS BINARY) AND h.`due` IS NULL ORDER BY h.`id` LIMIT 1), (SELECT h.`id` FROM `crm_jobs` AS h WHERE h.`target` = $2 AND CAST(h.`target` AS BINARY) = CAST($2 AS BINARY) AND h.`due` IS NOT NULL ORDER BY h.`due`, h.`id` LIMIT 1)) AND (q.`due` IS NULL OR q.`due` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $1) LIMIT 1) AS due STRAIGHT_JOIN `crm_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`target` = due.`target` AND CAST(q.`target` AS BINARY) = CAST(due.`target` AS BINARY) AND (q.`due` IS NULL OR q.`due` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) FOR UPDATE SKIP LOCKED;

-- claim
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1 WHERE `id` IN ($2);

-- claim check
(SELECT 0, w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $3 AND CAST(w.`target` AS BINARY) = CAST($3 AS BINARY) AND w.`locked_until` > $1 AND w.`locked_until` < $2 LIMIT 1 FOR UPDATE NOWAIT) UNION ALL (SELECT 0, w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $3 AND CAST(w.`target` AS BINARY) = CAST($3 AS BINARY) AND w.`locked_until` = $2 AND NOT COALESCE(w.`id` = $4, FALSE) LIMIT 1 FOR UPDATE NOWAIT) UNION ALL (SELECT 0, w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $3 AND CAST(w.`target` AS BINARY) = CAST($3 AS BINARY) AND w.`locked_until` > $2 ORDER BY w.`locked_until` DESC LIMIT 1 FOR UPDATE NOWAIT);

-- claim undo
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $2 WHERE `id` IN ($1) AND `locked_until` = $3;

-- renew find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = q.`target` AND CAST(w.`target` AS BINARY) = CAST(q.`target` AS BINARY) AND w.`id` <> q.`id` AND w.`locked_until` > $6) FOR UPDATE SKIP LOCKED;

-- renew
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- renew check
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = q.`target` AND CAST(w.`target` AS BINARY) = CAST(q.`target` AS BINARY) AND w.`id` <> q.`id` AND w.`locked_until` > $6);

-- release find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- release
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE `id` IN ($1, $2);

-- release
UPDATE `crm_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)));

-- finish find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- finish
DELETE q FROM (SELECT q.`id` FROM `crm_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `crm_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- finish
DELETE q FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)));

-- give back find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- give back
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE `id` IN ($1, $2);

-- give back
UPDATE `crm_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)));

-- hold find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- hold
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- hold find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2))) FOR UPDATE;

-- hold
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1 WHERE `id` IN ($2, $3);

-- postpone find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- postpone
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `due` = CASE `id` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `id` IN ($5, $6);

-- postpone
UPDATE `crm_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `due` = $1 WHERE ((q.`id` = $4 AND q.`locked_until` IN ($2, $3)));

-- move find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- move
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `target` = $1 WHERE `id` IN ($2, $3);

-- move
UPDATE `crm_jobs` AS q FORCE INDEX (`PRIMARY`) SET `locked_until` = NULL, `target` = $1 WHERE ((q.`id` = $4 AND q.`locked_until` IN ($2, $3)));

-- move find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2)) OR (q.`id` = $5 AND q.`locked_until` IN ($4))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `target`, `due`, `locked_until`) SELECT `id`, `target`, `due`, NULL FROM `crm_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `crm_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `crm_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- move find
SELECT q.`id` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`id` = $3 AND q.`locked_until` IN ($1, $2))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`id`, `target`, `due`, `locked_until`) SELECT `id`, `target`, `due`, NULL FROM `crm_jobs` WHERE `id` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`id` FROM `crm_jobs` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `crm_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = listed.`id`;

-- settle check
SELECT `id` FROM `crm_jobs` WHERE `id` IN ($1, $2);
