CREATE TABLE `mail_jobs` (
    `id` INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    `due` TEXT,
    `locked_until` TEXT
);
CREATE INDEX `mail_jobs_queue` ON `mail_jobs` (`due`, `id`) WHERE `locked_until` IS NULL;
CREATE INDEX `mail_jobs_lease` ON `mail_jobs` (`locked_until`) WHERE `locked_until` IS NOT NULL;
