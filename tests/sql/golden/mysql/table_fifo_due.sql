CREATE TABLE `crm_jobs` (
    `id` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `target` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    `due` datetime(6) NULL,
    `locked_until` datetime(6) NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE INDEX `crm_jobs_queue` ON `crm_jobs` (`target`, `due`, `id`);
CREATE INDEX `crm_jobs_lease` ON `crm_jobs` (`target`, `locked_until`);
