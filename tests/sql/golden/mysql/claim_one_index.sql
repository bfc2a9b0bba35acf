-- claim due
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`locked_until`, q.`headers`, q.`payload`, q.`note` FROM (SELECT q.`id` FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 33) AS due STRAIGHT_JOIN `app`.`mail_jobs` AS q FORCE INDEX (`PRIMARY`) ON q.`id` = due.`id` WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) LIMIT 1 FOR UPDATE SKIP LOCKED;

-- claim look
SELECT 1 FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) LIMIT 1;
