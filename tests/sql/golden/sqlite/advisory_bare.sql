-- claim candidates
SELECT q.`a ``b`` "c".d`, CAST('jobs-' || CASE typeof(q.`a ``b`` "c".d`) WHEN 'blob' THEN hex(q.`a ``b`` "c".d`) ELSE ifnull(q.`a ``b`` "c".d`, '') END AS TEXT) FROM (SELECT q.`a ``b`` "c".d` FROM `select` AS q ORDER BY q.`a ``b`` "c".d` LIMIT 1) AS q ORDER BY q.`a ``b`` "c".d` LIMIT 1;

-- claim candidates
SELECT q.`a ``b`` "c".d`, CAST('jobs-' || CASE typeof(q.`a ``b`` "c".d`) WHEN 'blob' THEN hex(q.`a ``b`` "c".d`) ELSE ifnull(q.`a ``b`` "c".d`, '') END AS TEXT) FROM (SELECT q.`a ``b`` "c".d` FROM `select` AS q WHERE CAST('jobs-' || CASE typeof(q.`a ``b`` "c".d`) WHEN 'blob' THEN hex(q.`a ``b`` "c".d`) ELSE ifnull(q.`a ``b`` "c".d`, '') END AS TEXT) NOT IN ($1, $2) AND q.`a ``b`` "c".d` NOT IN ($3) ORDER BY q.`a ``b`` "c".d` LIMIT 2) AS q ORDER BY q.`a ``b`` "c".d` LIMIT 2;

-- finish
DELETE FROM `select` AS q WHERE q.`a ``b`` "c".d` = $1 RETURNING `a ``b`` "c".d`;

-- move insert
INSERT INTO `app`.`dead` (`a ``b`` "c".d`) SELECT `a ``b`` "c".d` FROM `select` AS q WHERE q.`a ``b`` "c".d` = $1 RETURNING `a ``b`` "c".d`;

-- move delete
DELETE FROM `select` AS q WHERE q.`a ``b`` "c".d` = $1 RETURNING `a ``b`` "c".d`;
