-- claim due
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`locked_until`, q.`headers`, q.`payload`, q.`note` FROM (SELECT * FROM (SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`locked_until`, q.`headers`, q.`payload`, q.`note` FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND q.`locked_until` IS NULL ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 10) UNION ALL SELECT * FROM (SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`locked_until`, q.`headers`, q.`payload`, q.`note` FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND q.`locked_until` <= $1 ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 10)) AS q ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 10;

-- claim
UPDATE `app`.`mail_jobs` SET `locked_until` = $1, `attempt` = CASE WHEN typeof(`attempt`) <> 'integer' THEN 2 WHEN `attempt` > 5 THEN `attempt` ELSE `attempt` + 1 END WHERE `id` IN ($2);

-- renew
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `app`.`mail_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- renew check
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) SELECT q.`id` FROM inboxkit_held CROSS JOIN `app`.`mail_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt);

-- release
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `app`.`mail_jobs` AS q SET `locked_until` = NULL, `attempt` = q.`attempt` - inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- finish
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `app`.`mail_jobs` WHERE `id` IN (SELECT q.`id` FROM inboxkit_held CROSS JOIN `app`.`mail_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt)) RETURNING `id`;

-- give back
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `app`.`mail_jobs` AS q SET `locked_until` = NULL FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- hold
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `app`.`mail_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- postpone
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `app`.`mail_jobs` AS q SET `locked_until` = NULL, `retry_after` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- move
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `app`.`mail_jobs` AS q SET `locked_until` = NULL, `name` = $13 FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- move insert
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) INSERT INTO `app`.`dead` (`id`, `name`, `priority`, `retry_after`, `attempt`, `locked_until`, `headers`, `payload`, `note`) SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, NULL, q.`headers`, q.`payload`, q.`note` FROM inboxkit_held CROSS JOIN `app`.`mail_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt) RETURNING `id`;

-- move delete
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `app`.`mail_jobs` WHERE `id` IN (SELECT q.`id` FROM inboxkit_held CROSS JOIN `app`.`mail_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token AND (inboxkit_held.attempt IS NULL OR q.`attempt` = inboxkit_held.attempt)) RETURNING `id`;

-- settle check
SELECT `id` FROM `app`.`mail_jobs` WHERE `id` IN ($1, $2);
