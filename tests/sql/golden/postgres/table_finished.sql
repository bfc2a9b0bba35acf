CREATE TABLE "email_jobs" (
    "id" text PRIMARY KEY,
    "processed_at" timestamptz,
    "locked_until" timestamptz,
    "payload" text NOT NULL
);
CREATE INDEX "email_jobs_queue" ON "email_jobs" ("id") WHERE "processed_at" IS NULL AND "locked_until" IS NULL;
CREATE INDEX "email_jobs_lease" ON "email_jobs" ("locked_until") WHERE "locked_until" IS NOT NULL;
