CREATE TABLE `email_jobs` (
    `id` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    `processed_at` datetime(6) NULL,
    `locked_until` datetime(6) NULL,
    `payload` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE INDEX `email_jobs_queue` ON `email_jobs` (`processed_at`, `locked_until`, `id`);
