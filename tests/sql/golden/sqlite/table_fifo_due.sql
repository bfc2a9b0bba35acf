CREATE TABLE `crm_jobs` (
    `id` INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    `target` TEXT NOT NULL,
    `due` TEXT,
    `locked_until` TEXT
);
CREATE INDEX `crm_jobs_queue` ON `crm_jobs` (`target`, `due`, `id`);
CREATE INDEX `crm_jobs_lease` ON `crm_jobs` (`target`, `locked_until`) WHERE `locked_until` IS NOT NULL;
