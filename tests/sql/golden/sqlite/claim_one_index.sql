-- claim due
SELECT q.`id`, q.`name`, q.`priority`, q.`retry_after`, q.`attempt`, q.`locked_until`, q.`headers`, q.`payload`, q.`note` FROM `app`.`mail_jobs` AS q WHERE q.`name` = $2 AND (q.`retry_after` IS NULL OR q.`retry_after` <= $1) AND (q.`locked_until` IS NULL OR q.`locked_until` <= $1) ORDER BY q.`priority`, q.`retry_after`, q.`id` LIMIT 1;
