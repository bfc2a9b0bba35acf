CREATE TABLE `email_jobs` (
    `id` TEXT NOT NULL PRIMARY KEY,
    `processed_at` TEXT,
    `locked_until` TEXT,
    `payload` TEXT NOT NULL
);
CREATE INDEX `email_jobs_queue` ON `email_jobs` (`id`) WHERE `processed_at` IS NULL AND `locked_until` IS NULL;
CREATE INDEX `email_jobs_lease` ON `email_jobs` (`locked_until`) WHERE `locked_until` IS NOT NULL;
