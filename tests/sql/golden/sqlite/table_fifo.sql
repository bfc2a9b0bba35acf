CREATE TABLE `crm_jobs` (
    `id` INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    `target` TEXT NOT NULL,
    `attempt` INTEGER NOT NULL DEFAULT 1,
    `locked_until` TEXT,
    `payload` BLOB NOT NULL
);
CREATE INDEX `crm_jobs_queue` ON `crm_jobs` (`target`, `id`);
CREATE INDEX `crm_jobs_lease` ON `crm_jobs` (`target`, `locked_until`) WHERE `locked_until` IS NOT NULL;
