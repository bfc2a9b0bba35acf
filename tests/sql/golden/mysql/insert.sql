-- described, error: 1
-- insert
INSERT INTO `app`.`mail_jobs` (`name`, `priority`, `retry_after`, `attempt`, `locked_until`, `headers`, `payload`, `note`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16);

-- described, ignore: 1
-- insert
INSERT INTO `app`.`mail_jobs` (`name`, `priority`, `retry_after`, `attempt`, `locked_until`, `headers`, `payload`, `note`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16) ON DUPLICATE KEY UPDATE `id` = `id`;

-- described on MariaDB, error: 1
-- insert
INSERT INTO `app`.`mail_jobs` (`name`, `priority`, `retry_after`, `attempt`, `locked_until`, `headers`, `payload`, `note`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16) RETURNING `id`;

-- described on MariaDB, ignore: 1
-- insert
INSERT INTO `app`.`mail_jobs` (`name`, `priority`, `retry_after`, `attempt`, `locked_until`, `headers`, `payload`, `note`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16) ON DUPLICATE KEY UPDATE `id` = `id`;

-- not described, error: 1
-- insert
INSERT INTO `app`.`mail_jobs` (`name`, `priority`, `retry_after`, `attempt`, `locked_until`, `headers`, `payload`, `note`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16);

-- not described, ignore: 1
-- insert
INSERT INTO `app`.`mail_jobs` (`name`, `priority`, `retry_after`, `attempt`, `locked_until`, `headers`, `payload`, `note`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16) ON DUPLICATE KEY UPDATE `id` = `id`;
