CREATE TABLE `mail_jobs` (
    `id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `due` datetime(6) NULL,
    `locked_until` datetime(6) NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE INDEX `mail_jobs_queue` ON `mail_jobs` (`locked_until`, `due`, `id`);
