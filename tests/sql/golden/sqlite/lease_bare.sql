-- claim due
SELECT q.`ID`, q.`a ``b`` "c".d` FROM (SELECT * FROM (SELECT q.`ID`, q.`a ``b`` "c".d` FROM `select` AS q WHERE q.`a ``b`` "c".d` IS NULL ORDER BY q.`ID` LIMIT 10) UNION ALL SELECT * FROM (SELECT q.`ID`, q.`a ``b`` "c".d` FROM `select` AS q WHERE q.`a ``b`` "c".d` <= $1 ORDER BY q.`ID` LIMIT 10)) AS q ORDER BY q.`ID` LIMIT 10;

-- claim
UPDATE `select` SET `a ``b`` "c".d` = $1 WHERE `ID` IN ($2);

-- renew
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `select` AS q SET `a ``b`` "c".d` = inboxkit_held.value FROM inboxkit_held WHERE q.`ID` = inboxkit_held.id AND q.`a ``b`` "c".d` = inboxkit_held.token RETURNING `ID`;

-- renew check
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) SELECT q.`ID` FROM inboxkit_held CROSS JOIN `select` AS q WHERE q.`ID` = inboxkit_held.id AND q.`a ``b`` "c".d` = inboxkit_held.token;

-- release
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `select` AS q SET `a ``b`` "c".d` = NULL FROM inboxkit_held WHERE q.`ID` = inboxkit_held.id AND q.`a ``b`` "c".d` = inboxkit_held.token RETURNING `ID`;

-- finish
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `select` WHERE `ID` IN (SELECT q.`ID` FROM inboxkit_held CROSS JOIN `select` AS q WHERE q.`ID` = inboxkit_held.id AND q.`a ``b`` "c".d` = inboxkit_held.token) RETURNING `ID`;

-- give back
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `select` AS q SET `a ``b`` "c".d` = NULL FROM inboxkit_held WHERE q.`ID` = inboxkit_held.id AND q.`a ``b`` "c".d` = inboxkit_held.token RETURNING `ID`;

-- hold
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) UPDATE `select` AS q SET `a ``b`` "c".d` = inboxkit_held.value FROM inboxkit_held WHERE q.`ID` = inboxkit_held.id AND q.`a ``b`` "c".d` = inboxkit_held.token RETURNING `ID`;

-- move insert
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) INSERT INTO `app`.`dead` (`ID`, `a ``b`` "c".d`) SELECT q.`ID`, NULL FROM inboxkit_held CROSS JOIN `select` AS q WHERE q.`ID` = inboxkit_held.id AND q.`a ``b`` "c".d` = inboxkit_held.token RETURNING `ID`;

-- move delete
WITH inboxkit_held(id, token, attempt, value) AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), ($9, $10, $11, $12)) DELETE FROM `select` WHERE `ID` IN (SELECT q.`ID` FROM inboxkit_held CROSS JOIN `select` AS q WHERE q.`ID` = inboxkit_held.id AND q.`a ``b`` "c".d` = inboxkit_held.token) RETURNING `ID`;

-- settle check
SELECT `ID` FROM `select` WHERE `ID` IN ($1, $2);
