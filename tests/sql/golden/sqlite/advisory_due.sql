-- claim candidates
SELECT q.`id`, q.`account`, q.`due`, CAST(CASE typeof(q.`account`) WHEN 'blob' THEN hex(q.`account`) ELSE ifnull(q.`account`, '') END AS TEXT) FROM (SELECT * FROM (SELECT q.`id`, q.`account`, q.`due` FROM `ledger_jobs` AS q WHERE q.`due` IS NULL ORDER BY q.`due`, q.`id` LIMIT 1) UNION ALL SELECT * FROM (SELECT q.`id`, q.`account`, q.`due` FROM `ledger_jobs` AS q WHERE q.`due` <= $1 ORDER BY q.`due`, q.`id` LIMIT 1)) AS q ORDER BY q.`due`, q.`id` LIMIT 1;

-- claim candidates
SELECT q.`id`, q.`account`, q.`due`, CAST(CASE typeof(q.`account`) WHEN 'blob' THEN hex(q.`account`) ELSE ifnull(q.`account`, '') END AS TEXT) FROM (SELECT * FROM (SELECT q.`id`, q.`account`, q.`due` FROM `ledger_jobs` AS q WHERE CAST(CASE typeof(q.`account`) WHEN 'blob' THEN hex(q.`account`) ELSE ifnull(q.`account`, '') END AS TEXT) NOT IN ($2, $3) AND q.`id` NOT IN ($4) AND q.`due` IS NULL ORDER BY q.`due`, q.`id` LIMIT 2) UNION ALL SELECT * FROM (SELECT q.`id`, q.`account`, q.`due` FROM `ledger_jobs` AS q WHERE CAST(CASE typeof(q.`account`) WHEN 'blob' THEN hex(q.`account`) ELSE ifnull(q.`account`, '') END AS TEXT) NOT IN ($2, $3) AND q.`id` NOT IN ($4) AND q.`due` <= $1 ORDER BY q.`due`, q.`id` LIMIT 2)) AS q ORDER BY q.`due`, q.`id` LIMIT 2;

-- finish
DELETE FROM `ledger_jobs` AS q WHERE q.`id` = $1 RETURNING `id`;

-- postpone
UPDATE `ledger_jobs` AS q SET `due` = $2 WHERE q.`id` = $1 RETURNING `id`;

-- move insert
INSERT INTO `app`.`dead` (`id`, `account`, `due`) SELECT `id`, `account`, `due` FROM `ledger_jobs` AS q WHERE q.`id` = $1 RETURNING `id`;

-- move delete
DELETE FROM `ledger_jobs` AS q WHERE q.`id` = $1 RETURNING `id`;
