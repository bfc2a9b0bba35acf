-- claim due
SELECT q.`ID`, q.`a ``b`` "c".d` FROM (SELECT q.`ID` FROM ((SELECT q.`ID` FROM `select` AS q FORCE INDEX (`select_queue`) WHERE q.`a ``b`` "c".d` IS NULL ORDER BY q.`ID` LIMIT 42) UNION ALL (SELECT q.`ID` FROM `select` AS q FORCE INDEX (`select_queue`) WHERE q.`a ``b`` "c".d` <= $1 ORDER BY q.`ID` LIMIT 42)) AS q ORDER BY q.`ID` LIMIT 42) AS due STRAIGHT_JOIN `select` AS q FORCE INDEX (`PRIMARY`) ON q.`ID` = due.`ID` WHERE (q.`a ``b`` "c".d` IS NULL OR q.`a ``b`` "c".d` <= $1) LIMIT 10 FOR UPDATE SKIP LOCKED;

-- claim
UPDATE `select` FORCE INDEX (`PRIMARY`) SET `a ``b`` "c".d` = $1 WHERE `ID` IN ($2);

-- renew find
SELECT q.`ID` FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)) OR (q.`ID` = $5 AND q.`a ``b`` "c".d` IN ($4))) FOR UPDATE SKIP LOCKED;

-- renew
UPDATE `select` FORCE INDEX (`PRIMARY`) SET `a ``b`` "c".d` = CASE `ID` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `ID` IN ($5, $6);

-- renew check
SELECT q.`ID` FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)) OR (q.`ID` = $5 AND q.`a ``b`` "c".d` IN ($4)));

-- release find
SELECT q.`ID` FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)) OR (q.`ID` = $5 AND q.`a ``b`` "c".d` IN ($4))) FOR UPDATE;

-- release
UPDATE `select` FORCE INDEX (`PRIMARY`) SET `a ``b`` "c".d` = NULL WHERE `ID` IN ($1, $2);

-- release
UPDATE `select` AS q FORCE INDEX (`PRIMARY`) SET `a ``b`` "c".d` = NULL WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)));

-- finish find
SELECT q.`ID` FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)) OR (q.`ID` = $5 AND q.`a ``b`` "c".d` IN ($4))) FOR UPDATE;

-- finish
DELETE q FROM (SELECT q.`ID` FROM `select` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `select` AS q FORCE INDEX (`PRIMARY`) ON q.`ID` = listed.`ID`;

-- finish
DELETE q FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)));

-- give back find
SELECT q.`ID` FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)) OR (q.`ID` = $5 AND q.`a ``b`` "c".d` IN ($4))) FOR UPDATE;

-- give back
UPDATE `select` FORCE INDEX (`PRIMARY`) SET `a ``b`` "c".d` = NULL WHERE `ID` IN ($1, $2);

-- give back
UPDATE `select` AS q FORCE INDEX (`PRIMARY`) SET `a ``b`` "c".d` = NULL WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)));

-- hold find
SELECT q.`ID` FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)) OR (q.`ID` = $5 AND q.`a ``b`` "c".d` IN ($4))) FOR UPDATE;

-- hold
UPDATE `select` FORCE INDEX (`PRIMARY`) SET `a ``b`` "c".d` = CASE `ID` WHEN $1 THEN $2 WHEN $3 THEN $4 END WHERE `ID` IN ($5, $6);

-- hold find
SELECT q.`ID` FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2))) FOR UPDATE;

-- hold
UPDATE `select` FORCE INDEX (`PRIMARY`) SET `a ``b`` "c".d` = $1 WHERE `ID` IN ($2, $3);

-- move find
SELECT q.`ID` FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2)) OR (q.`ID` = $5 AND q.`a ``b`` "c".d` IN ($4))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`ID`, `a ``b`` "c".d`) SELECT `ID`, NULL FROM `select` WHERE `ID` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`ID` FROM `select` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `select` AS q FORCE INDEX (`PRIMARY`) ON q.`ID` = listed.`ID`;

-- move find
SELECT q.`ID` FROM `select` AS q FORCE INDEX (`PRIMARY`) WHERE ((q.`ID` = $3 AND q.`a ``b`` "c".d` IN ($1, $2))) FOR UPDATE;

-- move insert
INSERT INTO `app`.`dead` (`ID`, `a ``b`` "c".d`) SELECT `ID`, NULL FROM `select` WHERE `ID` IN ($1, $2);

-- move delete
DELETE q FROM (SELECT q.`ID` FROM `select` AS q WHERE FALSE UNION ALL SELECT $1 UNION ALL SELECT $2) AS listed STRAIGHT_JOIN `select` AS q FORCE INDEX (`PRIMARY`) ON q.`ID` = listed.`ID`;

-- settle check
SELECT `ID` FROM `select` WHERE `ID` IN ($1, $2);
