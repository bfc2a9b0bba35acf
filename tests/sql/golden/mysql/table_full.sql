CREATE TABLE `app`.`mail_jobs` (
    `id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `name` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    `priority` int NOT NULL,
    `retry_after` datetime(6) NULL,
    `attempt` int NOT NULL DEFAULT 1,
    `locked_until` datetime(6) NULL,
    `headers` json NOT NULL,
    `payload` longblob NOT NULL,
    `note` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE INDEX `mail_jobs_queue` ON `app`.`mail_jobs` (`name`, `locked_until`, `priority`, `retry_after`, `id`);
