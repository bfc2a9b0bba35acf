-- claim due
SELECT q.`id`, q.`processed_at`, q.`locked_until`, q.`payload` FROM (SELECT * FROM (SELECT q.`id`, q.`processed_at`, q.`locked_until`, q.`payload` FROM `email_jobs` AS q WHERE q.`processed_at` IS NULL AND q.`locked_until` IS NULL ORDER BY q.`id` LIMIT 10) UNION ALL SELECT * FROM (SELECT q.`id`, q.`processed_at`, q.`locked_until`, q.`payload` FROM `email_jobs` AS q WHERE q.`processed_at` IS NULL AND q.`locked_until` <= $1 ORDER BY q.`id` LIMIT 10)) AS q ORDER BY q.`id` LIMIT 10;

-- claim
UPDATE `email_jobs` SET `locked_until` = $1 WHERE `id` IN ($2);

-- renew
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `email_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- renew check
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) SELECT q.`id` FROM inboxkit_held CROSS JOIN `email_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token;

-- release
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `email_jobs` AS q SET `locked_until` = NULL FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- finish
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `email_jobs` AS q SET `locked_until` = NULL, `processed_at` = $13 FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- give back
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `email_jobs` AS q SET `locked_until` = NULL FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- hold
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `email_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- move insert
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) INSERT INTO `app`.`dead` (`id`, `processed_at`, `locked_until`, `payload`) SELECT q.`id`, q.`processed_at`, NULL, q.`payload` FROM inboxkit_held CROSS JOIN `email_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- move delete
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `email_jobs` WHERE `id` IN (SELECT q.`id` FROM inboxkit_held CROSS JOIN `email_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token) RETURNING `id`;

-- settle check
SELECT `id` FROM `email_jobs` WHERE `id` IN ($1, $2) AND `processed_at` IS NULL;
