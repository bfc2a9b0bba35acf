-- claim due
SELECT q.`id`, q.`due`, q.`locked_until` FROM (SELECT * FROM (SELECT q.`id`, q.`due`, q.`locked_until` FROM `mail_jobs` AS q WHERE q.`due` IS NULL AND q.`locked_until` IS NULL ORDER BY q.`due`, q.`id` LIMIT 10) UNION ALL SELECT * FROM (SELECT q.`id`, q.`due`, q.`locked_until` FROM `mail_jobs` AS q WHERE q.`due` <= $1 AND q.`locked_until` IS NULL ORDER BY q.`due`, q.`id` LIMIT 10) UNION ALL SELECT * FROM (SELECT q.`id`, q.`due`, q.`locked_until` FROM `mail_jobs` AS q WHERE (q.`due` IS NULL OR q.`due` <= $1) AND q.`locked_until` <= $1 ORDER BY q.`due`, q.`id` LIMIT 10)) AS q ORDER BY q.`due`, q.`id` LIMIT 10;

-- claim
UPDATE `mail_jobs` SET `locked_until` = $1 WHERE `id` IN ($2);

-- renew
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `mail_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- renew check
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) SELECT q.`id` FROM inboxkit_held CROSS JOIN `mail_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token;

-- release
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `mail_jobs` AS q SET `locked_until` = NULL FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- finish
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `mail_jobs` WHERE `id` IN (SELECT q.`id` FROM inboxkit_held CROSS JOIN `mail_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token) RETURNING `id`;

-- give back
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `mail_jobs` AS q SET `locked_until` = NULL FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- hold
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `mail_jobs` AS q SET `locked_until` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- postpone
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `mail_jobs` AS q SET `locked_until` = NULL, `due` = inboxkit_held.value FROM inboxkit_held WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- move insert
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) INSERT INTO `app`.`dead` (`id`, `due`, `locked_until`) SELECT q.`id`, q.`due`, NULL FROM inboxkit_held CROSS JOIN `mail_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token RETURNING `id`;

-- move delete
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `mail_jobs` WHERE `id` IN (SELECT q.`id` FROM inboxkit_held CROSS JOIN `mail_jobs` AS q WHERE q.`id` = inboxkit_held.id AND q.`locked_until` = inboxkit_held.token) RETURNING `id`;

-- settle check
SELECT `id` FROM `mail_jobs` WHERE `id` IN ($1, $2);
