-- claim due
SELECT q.`id`, q.`target`, q.`due`, q.`locked_until` FROM `crm_jobs` AS q WHERE q.`id` = (SELECT q.`id` FROM `crm_jobs` AS q WHERE q.`target` = $2 ORDER BY q.`due`, q.`id` LIMIT 1) AND (q.`due` IS NULL OR q.`due` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS q WHERE q.`target` = $2 AND q.`locked_until` > $1) ORDER BY q.`due`, q.`id` LIMIT 10;

-- claim
UPDATE `crm_jobs` SET `locked_until` = $1 WHERE `id` IN ($2);

-- renew
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = q.`target` AND w.`id` <> q.`id` AND w.`locked_until` > $13) RETURNING `id`;

-- renew check
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) SELECT q.`id` FROM inboxkit_held CROSS JOIN `crm_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = q.`target` AND w.`id` <> q.`id` AND w.`locked_until` > $13);

-- release
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = NULL FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- finish
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `crm_jobs` WHERE `id` IN (SELECT q.`id` FROM inboxkit_held CROSS JOIN `crm_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token) RETURNING `id`;

-- give back
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = NULL FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- hold
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- postpone
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = NULL, `due` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- move
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = NULL, `target` = $13 FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- move insert
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) INSERT INTO `app`.`dead` (`id`, `target`, `due`, `locked_until`) SELECT q.`id`, q.`target`, q.`due`, NULL FROM inboxkit_held CROSS JOIN `crm_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- move delete
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `crm_jobs` WHERE `id` IN (SELECT q.`id` FROM inboxkit_held CROSS JOIN `crm_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token) RETURNING `id`;

-- settle check
SELECT `id` FROM `crm_jobs` WHERE `id` IN ($1, $2);
