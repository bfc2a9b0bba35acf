CREATE TABLE `crm_jobs` (
    `id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `target` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    `attempt` int NOT NULL DEFAULT 1,
    `locked_until` datetime(6) NULL,
    `payload` longblob NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE INDEX `crm_jobs_queue` ON `crm_jobs` (`target`, `id`);
CREATE INDEX `crm_jobs_lease` ON `crm_jobs` (`target`, `locked_until`);
