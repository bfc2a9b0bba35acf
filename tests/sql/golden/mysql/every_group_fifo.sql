-- claim look
WITH walk AS (SELECT q.`target` AS name FROM `crm_jobs` AS q WHERE q.`target` IS NOT NULL GROUP BY q.`target` ORDER BY q.`target` LIMIT 128) SELECT found.name, found.is_served, stop.name FROM (SELECT (SELECT MAX(walk.name) FROM walk HAVING COUNT(*) = 128) AS name) AS stop LEFT JOIN (SELECT best.name, FALSE AS is_served, ROW_NUMBER() OVER (ORDER BY FALSE, best.`id`) AS place FROM (SELECT heads.*, ROW_NUMBER() OVER (PARTITION BY heads.name ORDER BY heads.`id`) AS nth FROM (SELECT walk.name, q.`id` FROM walk JOIN `crm_jobs` AS q ON q.`id` = (SELECT q.`id` FROM `crm_jobs` AS q WHERE q.`target` = walk.name AND CAST(q.`target` AS BINARY) = CAST(walk.name AS BINARY) ORDER BY q.`id` LIMIT 1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT COALESCE((SELECT w.`locked_until` FROM `crm_jobs` AS w WHERE w.`target` = walk.name AND CAST(w.`target` AS BINARY) = CAST(walk.name AS BINARY) ORDER BY w.`target` DESC, w.`locked_until` DESC LIMIT 1) > $1, FALSE)) AS heads) AS best WHERE best.nth = 1 AND NOT (CAST(best.name AS BINARY) IN (CAST($2 AS BINARY), CAST($3 AS BINARY))) AND NOT (CHAR_LENGTH(best.name) >= 5 AND CAST(RIGHT(best.name, 5) AS BINARY) = CAST($4 AS BINARY)) ORDER BY place LIMIT 9) AS found ON TRUE ORDER BY found.place;

-- claim look
WITH walk AS (SELECT q.`target` AS name FROM `crm_jobs` AS q WHERE q.`target` > $2 GROUP BY q.`target` ORDER BY q.`target` LIMIT 128) SELECT found.name, found.is_served, stop.name FROM (SELECT (SELECT MAX(walk.name) FROM walk HAVING COUNT(*) = 128) AS name) AS stop LEFT JOIN (SELECT best.name, (CAST(best.name AS BINARY) IN (CAST($8 AS BINARY), CAST($9 AS BINARY))) AS is_served, ROW_NUMBER() OVER (ORDER BY (CAST(best.name AS BINARY) IN (CAST($8 AS BINARY), CAST($9 AS BINARY))), best.`id`) AS place FROM (SELECT heads.*, ROW_NUMBER() OVER (PARTITION BY heads.name ORDER BY heads.`id`) AS nth FROM (SELECT walk.name, q.`id` FROM walk JOIN `crm_jobs` AS q ON q.`id` = (SELECT q.`id` FROM `crm_jobs` AS q WHERE q.`target` = walk.name AND CAST(q.`target` AS BINARY) = CAST(walk.name AS BINARY) AND q.`id` NOT IN ($3, $4) ORDER BY q.`id` LIMIT 1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT COALESCE((SELECT w.`locked_until` FROM `crm_jobs` AS w WHERE w.`target` = walk.name AND CAST(w.`target` AS BINARY) = CAST(walk.name AS BINARY) AND w.`id` NOT IN ($3, $4) ORDER BY w.`target` DESC, w.`locked_until` DESC LIMIT 1) > $1, FALSE)) AS heads) AS best WHERE best.nth = 1 AND NOT (CAST(best.name AS BINARY) IN (CAST($5 AS BINARY), CAST($6 AS BINARY))) AND NOT (CHAR_LENGTH(best.name) >= 5 AND CAST(RIGHT(best.name, 5) AS BINARY) = CAST($7 AS BINARY)) ORDER BY place LIMIT 9) AS found ON TRUE ORDER BY found.place;

-- claim look
SELECT 1 FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` = (SELECT h.`id` FROM `crm_jobs` AS h WHERE h.`target` = $2 AND CAST(h.`target` AS BINARY) = CAST($2 AS BINARY) ORDER BY h.`id` LIMIT 1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $1) LIMIT 1;

-- claim due
SELECT q.`id`, q.`target`, q.`attempt`, q.`locked_until`, q.`payload` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` = (SELECT h.`id` FROM `crm_jobs` AS h WHERE h.`target` = $2 AND CAST(h.`target` AS BINARY) = CAST($2 AS BINARY) ORDER BY h.`id` LIMIT 1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $1) FOR UPDATE SKIP LOCKED;

-- claim
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1, `attempt` = CASE WHEN `attempt` > 5 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($2);

-- claim check
(SELECT w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $1 AND w.`locked_until` < $4 LIMIT 1 FOR UPDATE NOWAIT) UNION ALL (SELECT w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` = $4 AND NOT COALESCE(w.`id` = $3, FALSE) LIMIT 1 FOR UPDATE NOWAIT) UNION ALL (SELECT w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $4 ORDER BY w.`locked_until` DESC LIMIT 1 FOR UPDATE NOWAIT);

-- claim undo
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1, `attempt` = $2 WHERE `id` = $3 AND `locked_until` = $4;

-- claim look
SELECT 1 FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` = (SELECT h.`id` FROM `crm_jobs` AS h WHERE h.`target` = $2 AND CAST(h.`target` AS BINARY) = CAST($2 AS BINARY) ORDER BY h.`id` LIMIT 1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $1) LIMIT 1;

-- claim due
SELECT q.`id`, q.`target`, q.`attempt`, q.`locked_until`, q.`payload` FROM `crm_jobs` AS q FORCE INDEX (`PRIMARY`) WHERE q.`id` = (SELECT h.`id` FROM `crm_jobs` AS h WHERE h.`target` = $2 AND CAST(h.`target` AS BINARY) = CAST($2 AS BINARY) ORDER BY h.`id` LIMIT 1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $1) FOR UPDATE SKIP LOCKED;

-- claim
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1, `attempt` = CASE WHEN `attempt` > 5 THEN `attempt` ELSE COALESCE(`attempt`, 1) + 1 END WHERE `id` IN ($2);

-- claim check
(SELECT w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $1 AND w.`locked_until` < $4 LIMIT 1 FOR UPDATE NOWAIT) UNION ALL (SELECT w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` = $4 AND NOT COALESCE(w.`id` = $3, FALSE) LIMIT 1 FOR UPDATE NOWAIT) UNION ALL (SELECT w.`id` FROM `crm_jobs` AS w FORCE INDEX (`crm_jobs_queue`) WHERE w.`target` = $2 AND CAST(w.`target` AS BINARY) = CAST($2 AS BINARY) AND w.`locked_until` > $4 ORDER BY w.`locked_until` DESC LIMIT 1 FOR UPDATE NOWAIT);

-- claim undo
UPDATE `crm_jobs` FORCE INDEX (`PRIMARY`) SET `locked_until` = $1, `attempt` = $2 WHERE `id` = $3 AND `locked_until` = $4;
