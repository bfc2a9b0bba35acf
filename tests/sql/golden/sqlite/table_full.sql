CREATE TABLE `app`.`mail_jobs` (
    `id` INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    `name` TEXT NOT NULL,
    `priority` INTEGER NOT NULL,
    `retry_after` TEXT,
    `attempt` INTEGER NOT NULL DEFAULT 1,
    `locked_until` TEXT,
    `headers` TEXT NOT NULL,
    `payload` BLOB NOT NULL,
    `note` TEXT
);
CREATE INDEX `app`.`mail_jobs_queue` ON `mail_jobs` (`name`, `priority`, `retry_after`, `id`) WHERE `locked_until` IS NULL;
CREATE INDEX `app`.`mail_jobs_lease` ON `mail_jobs` (`name`, `locked_until`) WHERE `locked_until` IS NOT NULL;
