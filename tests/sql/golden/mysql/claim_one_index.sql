-- claim look
SELECT 1 FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND CAST(q.`name` AS BINARY) = CAST($2 AS BINARY) AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) LIMIT 1;
