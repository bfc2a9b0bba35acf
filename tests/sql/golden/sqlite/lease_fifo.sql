-- claim due
SELECT q.`id`, q.`target`, q.`attempt`, q.`locked_until`, q.`payload` FROM `crm_jobs` AS q WHERE q.`id` = (SELECT q.`id` FROM `crm_jobs` AS q WHERE q.`target` = $2 ORDER BY q.`id` LIMIT 1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS q WHERE q.`target` = $2 AND q.`locked_until` > $1) ORDER BY q.`id` LIMIT 10;

-- claim
UPDATE `crm_jobs` SET `locked_until` = $1, `attempt` = CASE WHEN typeof(`attempt`) <> 'integer' THEN 2 WHEN `attempt` > 5 THEN `attempt` ELSE `attempt` + 1 END WHERE `id` IN ($2);

-- renew
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = q.`target` AND w.`id` <> q.`id` AND w.`locked_until` > $13) RETURNING `id`;

-- renew check
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) SELECT q.`id` FROM inboxkit_held CROSS JOIN `crm_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) AND NOT EXISTS (SELECT 1 FROM `crm_jobs` AS w WHERE w.`target` = q.`target` AND w.`id` <> q.`id` AND w.`locked_until` > $13);

-- release
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = NULL, `attempt` = q.`attempt` - inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- finish
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `crm_jobs` WHERE `id` IN (SELECT q.`id` FROM inboxkit_held CROSS JOIN `crm_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt)) RETURNING `id`;

-- give back
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = NULL FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- hold
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- move
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `crm_jobs` AS q SET `locked_until` = NULL, `target` = $13 FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- move insert
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) INSERT INTO `app`.`dead` (`id`, `target`, `attempt`, `locked_until`, `payload`) SELECT q.`id`, q.`target`, q.`attempt`, NULL, q.`payload` FROM inboxkit_held CROSS JOIN `crm_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- move delete
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `crm_jobs` WHERE `id` IN (SELECT q.`id` FROM inboxkit_held CROSS JOIN `crm_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt)) RETURNING `id`;

-- settle check
SELECT `id` FROM `crm_jobs` WHERE `id` IN ($1, $2);
